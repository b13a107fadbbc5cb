// Tasks on the threads that torch already has (remix_lend_threads), or else on plain threads started per call. Torch's
// own wait for the next job at full speed: on a second set of threads every call just after an operation of torch would
// share its cores with them (measured: 1.5 x the time).
#pragma once
#include <cstdint>
#include <type_traits>

namespace remix {

// Calls work(context, task, worker) for task = 0..tasks-1 on up to `threads` workers, in any order (threads.cpp).
void run_tasks(int64_t tasks, int threads, void (*work)(void*, int64_t, int), void* context);

// The same for a callable work(task, worker). Results must not depend on which worker does what: reductions go through
// per-task storage and are added in task order afterwards. No standard-library code is instantiated here, so that none
// is emitted with the instructions of one instruction-set unit and linked into another.
template <class Work>
void parallel(int64_t tasks, int threads, Work&& work) {
  struct Call {
    static void one(void* context, int64_t task, int worker) {
      (*static_cast<std::remove_reference_t<Work>*>(context))(task, worker);
    }
  };
  run_tasks(tasks, threads, &Call::one, const_cast<std::remove_const_t<std::remove_reference_t<Work>>*>(&work));
}

}  // namespace remix
