// Plain threads, started per call: no second OpenMP runtime, nothing to break on fork.
#pragma once
#include <atomic>
#include <thread>
#include <vector>

namespace remix {

// Calls work(task, worker) for task = 0..tasks-1 on up to `threads` workers, in any order. Results must not depend on
// which worker does what: reductions go through per-task storage and are added in task order afterwards.
template <class Work>
void parallel(int64_t tasks, int threads, Work&& work) {
  const int workers = static_cast<int>(tasks < threads ? tasks : threads);
  if (workers <= 1) {
    for (int64_t task = 0; task < tasks; ++task) work(task, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  auto run = [&](int worker) {
    for (int64_t task; (task = next.fetch_add(1)) < tasks;) work(task, worker);
  };
  std::vector<std::thread> pool;
  pool.reserve(workers - 1);
  for (int worker = 1; worker < workers; ++worker) {
    try {
      pool.emplace_back(run, worker);
    } catch (...) {
      break;  // no more threads to be had: the ones that run do all the work
    }
  }
  run(0);
  for (auto& thread : pool) thread.join();
}

}  // namespace remix
