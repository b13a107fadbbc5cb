#include "threads.h"

#include <atomic>
#include <thread>
#include <vector>

namespace remix {

void run_tasks(int64_t tasks, int threads, void (*work)(void*, int64_t, int), void* context) {
  const int workers = static_cast<int>(tasks < threads ? tasks : threads);
  std::atomic<int64_t> next{0};
  auto run = [&](int worker) {
    for (int64_t task; (task = next.fetch_add(1)) < tasks;) work(context, task, worker);
  };
  std::vector<std::thread> pool;
  pool.reserve(workers > 1 ? workers - 1 : 0);
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
