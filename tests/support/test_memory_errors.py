from remix.support.memory_errors import out_of_memory


def test_an_error_raised_from_itself_comes_to_an_answer():
    error = ValueError("x")
    error.__cause__ = error
    assert not out_of_memory(error)


def test_what_an_error_was_raised_from_counts():
    error = ValueError("x")
    error.__cause__ = MemoryError()
    assert out_of_memory(error)
