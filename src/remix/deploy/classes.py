"""Keeping house: classes of a model renamed, removed or merged, and steps of learning undone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from remix.deploy.step import opened
from remix.learning import LearnStep, Model, check_class_names
from remix.learning.history import with_changed_classes, with_note
from remix.methods import create_method, list_methods, method_class
from remix.methods.exact import Exact
from remix.networks import Classifier, ExactHead, ExactLinearHead, Head
from remix.statistics import ClassRecord, ClassSums, Memory
from remix.support.text import counted

__all__ = ["TaughtClass", "abilities", "back_to", "change_classes", "taught_classes"]

_WEIGHTS = "the weights of the network, and its BatchNorm statistics, were trained on its images"
_CHOSEN = "which features are used, and how strongly the head is held back, was chosen with its images"
_TOGETHER = "the outputs of the other classes were solved together with it"


class TaughtClass(NamedTuple):
    """A class: its images, as far as the file tells, and the numbers of the steps that had some of it."""

    label: int
    name: str
    images: int | None
    steps: tuple[int, ...]


def taught_classes(model: Model) -> list[TaughtClass]:
    """The classes of a model; steps are those of its history, or the tasks of its memory if it has none."""
    records = model.memory.classes if model.memory else ()
    tasks = [[model.classes[label] for label in task.labels] for task in model.memory.tasks] if model.memory else []
    steps: Sequence[Sequence[str]] = [step.classes for step in model.history] or tasks
    return [
        TaughtClass(
            label,
            name,
            records[label].images if records else None,
            tuple(number for number, names in enumerate(steps, 1) if name in names),
        )
        for label, name in enumerate(model.classes)
    ]


def abilities(model: Model) -> list[str]:
    """What can and cannot be done with the classes of a model, in sentences."""
    latest = _steps(model)
    first = _earliest(model)
    told = []
    if first < latest:
        told.append(f"the model can go back to step {', '.join(map(str, range(first, latest)))} (--to-step)")
    elif latest > 1:
        told.append(_no_way_back(model, latest - 1))
    if (reason := _unmergeable(model)) is not None:
        told.append(reason)
    ends = (0, len(model.classes) - 1) if len(model.classes) > 1 else ()
    stays = dict.fromkeys(one for label in ends for one in _stays(model, [label]))
    return [*told, *(f"if a class is removed, this stays: {one}" for one in stays)]


# --- names, removals, mergers ---


def change_classes(
    model: Model,
    rename: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    merge: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Model, tuple[str, ...]]:
    """The model with other names, without some classes, with some classes as one. The given one is not changed.

    Args:
        model: whose classes.
        rename: from the old name to the new one.
        remove: classes whose mean, outputs and statistics are deleted.
        merge: from the name of the new class, which may be one of its classes', to the classes that become it: what an
            exact head would be if their images had been in one folder.

    Returns:
        the new model, and what still mixes the removed classes in, in words.

    Raises:
        ValueError: for classes that it does not have, names that it has, nothing to do, or nothing that would be left;
            and where classes cannot be merged.

    """
    rename, merge = dict(rename or {}), {new: tuple(names) for new, names in (merge or {}).items()}
    names = _new_names(model, rename, remove, merge)
    if merge and (reason := _unmergeable(model)) is not None:
        raise ValueError(reason)
    gone = [label for label, name in enumerate(model.classes) if names[name] is None]
    kept = [(label, new) for label, name in enumerate(model.classes) if (new := names[name]) is not None]
    classes = tuple(dict.fromkeys(new for _, new in kept))
    memory = model.memory
    if memory is not None:
        if gone:
            memory, _ = memory.without(gone, len(model.classes))
        places = {place: classes.index(new) for place, (_, new) in enumerate(kept)}
        memory = memory.relabelled(places, classes if memory.classes else ())
    head = model.classifier.head
    if gone or merge:
        head = head.without(gone) if _sums(model) is None else _solved(head, memory or Memory())
    told = [f"renamed {old!r} to {new!r}" for old, new in rename.items()]
    told += [f"merged {' and '.join(map(repr, old))} into {new!r}" for new, old in merge.items()]
    told += [f"removed {counted(len(gone), 'class')}"] if gone else []
    changed = _changed(model, head, classes, memory, with_changed_classes(model.history, names), "; ".join(told))
    return changed, tuple(_stays(model, gone))


def _new_names(
    model: Model, rename: Mapping[str, str], remove: Sequence[str], merge: Mapping[str, Sequence[str]]
) -> dict[str, str | None]:
    """What every class is to be called; None for those that go. Raises ValueError for what cannot be done."""
    if not rename and not remove and not merge:
        raise ValueError("nothing is to be changed: say what to rename, remove or merge (--rename, --remove, --merge)")
    for new, old in merge.items():
        if len(old) < 2 or len(set(old)) < len(old):
            raise ValueError(
                f"{new!r} would be made of {', '.join(old) or 'nothing'}: merge two or more different classes"
            )
    asked = [*rename, *remove, *(name for old in merge.values() for name in old)]
    model.labels(asked)  # raises for names that it does not know
    if twice := sorted({name for name in asked if asked.count(name) > 1}):
        raise ValueError(f"{twice[0]!r} is named twice: a class can be renamed, removed or merged, once each time")
    names: dict[str, str | None] = {name: rename.get(name, name) for name in model.classes}
    names |= dict.fromkeys(remove, None) | {name: new for new, old in merge.items() for name in old}
    for new, old in [*((new, (old,)) for old, new in rename.items()), *merge.items()]:
        if new in model.classes and (new in rename or new not in old):
            raise ValueError(f"there is a class {new!r} already: choose another name, or merge the two (--merge)")
    if len(set(rename.values()) | set(merge)) < len(rename) + len(merge):
        raise ValueError("two classes would have the same name: merge them if they are one (--merge)")
    left = tuple(dict.fromkeys(new for new in names.values() if new is not None))
    if not left:
        raise ValueError("no class would be left: a model keeps at least one, delete the file instead")
    check_class_names(left)
    return names


def _unmergeable(model: Model) -> str | None:
    """Why classes cannot be merged, or None."""
    if _sums(model) is not None:
        return None
    return (
        "classes cannot be merged in this model: only exact heads (lda, ranpac, ncm, fecam) keep sums to solve them "
        "from, and no output of a trained head gives the probability of two classes"
    )


def _stays(model: Model, gone: Sequence[int]) -> list[str]:
    """What a model mixes classes into that are removed, in words."""
    if not gone:
        return []
    _, told = (model.memory or Memory()).without(gone, len(model.classes))
    names = {model.classes[label] for label in gone}
    exact = isinstance(model.classifier.head, ExactHead)
    begun = bool(names.intersection(model.history[0].classes)) if model.history else True
    brought = opened(model).trained and "adopted" not in model.provenance  # by others, on other classes
    if not exact or (begun and not brought):
        told.append(_WEIGHTS)
    if exact and _sums(model) is None:
        told.append(_TOGETHER)
    elif exact and begun:
        told.append(_CHOSEN)
    return told


# --- back to an earlier step ---


def back_to(model: Model, step: int) -> Model:
    """The model as it was after a step. Names that were changed since stay changed, removed classes stay removed.

    Args:
        model: with an exact head, that keeps the sums of the later steps by themselves. It is not changed.
        step: as the history counts, from 1.

    Raises:
        ValueError: if there is no such step, or the file does not allow it.

    """
    latest = _steps(model)
    if not 1 <= step < latest:
        listed = f"1 to {latest - 1}" if latest > 2 else "1" if latest == 2 else "none"
        raise ValueError(f"the model is what {counted(latest, 'step')} made of it; earlier ones: {listed}; got {step}")
    if step < _earliest(model):
        raise ValueError(_no_way_back(model, step))
    sums, whole = _sums(model), model.memory
    assert sums is not None
    assert whole is not None
    sums = sums.of_parts(sums.parts[: len(sums.parts) - (latest - step)])
    memory, _ = whole.without([label for label in range(len(model.classes)) if label not in sums.labels])
    memory.keep(sums)
    memory.classes = tuple(map(ClassRecord, (record.name for record in memory.classes), sums.counts))
    classes = tuple(record.name for record in memory.classes)
    head = _solved(model.classifier.head, memory)
    later = f"step {latest}" if step == latest - 1 else f"steps {step + 1} to {latest}"
    return _changed(model, head, classes, memory, model.history[:step], f"went back to step {step}, without {later}")


def _steps(model: Model) -> int:
    sums = _sums(model)
    return len(model.history) or (len(sums.parts) if sums else len(model.memory.tasks) if model.memory else 0)


def _earliest(model: Model) -> int:
    """The first step that the file allows to go back to; the last one if there is none."""
    sums, latest = _sums(model), _steps(model)
    if sums is None:
        return latest
    return max(latest - len(sums.parts) + 1, _last_trained(model))


def _last_trained(model: Model) -> int:
    """The last step that may have changed the weights, whatever its method; 0 if none has."""
    solved = [name for name in list_methods() if method_class(name).exact]
    return max((number for number, step in enumerate(model.history, 1) if step.method not in solved), default=0)


def _no_way_back(model: Model, step: int) -> str:
    sums, latest = _sums(model), _steps(model)
    keep = f"the model cannot go back to step {step}"
    if sums is None or step < _last_trained(model):
        return f"{keep}: only exact heads keep sums of their steps, others train weights; use the file of that step"
    if sums.scatter.kind == "laplace":
        return f"{keep}: its Laplace covariance is fitted to all steps together; use the file of that step"
    first = latest - len(sums.parts) + 1
    return f"{keep}: the file keeps the sums of steps 1 to {first} as one; use the file of that step"


# --- parts of both ---


def _sums(model: Model) -> ClassSums | None:
    """What an exact head of all classes can be solved from."""
    sums = model.memory.get(ClassSums.name) if model.memory is not None else None
    whole = sums is not None and sums.labels == tuple(range(len(model.classes)))
    return sums if whole and isinstance(model.classifier.head, ExactHead) else None


def _solved(head: Head, memory: Memory) -> ExactHead:
    """An exact head of the classes of a memory, on the features of another."""
    sums = memory.get(ClassSums.name)
    method = create_method(sums.method)
    assert isinstance(method, Exact)
    assert isinstance(head, ExactHead)
    map = copy.deepcopy(head.map)
    room = ExactLinearHead(map, [len(task.labels) for task in memory.tasks])
    found = method.solved(sums, map, room, sums.labels).head
    with torch.no_grad():
        found.scale.fill_(sums.scale)
    return found.float()


def _changed(
    model: Model, head: Head, classes: tuple[str, ...], memory: Memory | None, history: Sequence[LearnStep], told: str
) -> Model:
    """The same network with all this; the history tells what happened, or the provenance if there is none."""
    provenance = dict(model.provenance)
    if history:
        history = with_note(history, told)
    else:
        provenance["changed"] = told[:1000]
    classifier = Classifier(model.classifier.backbone, head).eval()
    return replace(
        model, classifier=classifier, classes=classes, memory=memory, history=tuple(history), provenance=provenance
    )
