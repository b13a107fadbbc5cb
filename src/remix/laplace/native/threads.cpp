#include "threads.h"

#include <atomic>
#include <thread>
#include <vector>

#include "isa.h"

namespace remix {
namespace {

// GOMP_parallel(function, data, threads, flags) of the OpenMP runtime that torch uses, or null.
using Pool = void (*)(void (*)(void*), void*, unsigned, unsigned);
std::atomic<Pool> lent{nullptr};

struct Job {
  int64_t tasks;
  int workers;
  void (*work)(void*, int64_t, int);
  void* context;
  std::atomic<int64_t> next{0};
  std::atomic<int> joined{0};

  void take(int worker) {
    for (int64_t task; (task = next.fetch_add(1)) < tasks;) work(context, task, worker);
  }
};

// However many threads the pool brings, in a nested region only one: they share the tasks, and the superfluous leave.
void join(void* data) {
  Job& job = *static_cast<Job*>(data);
  const int worker = job.joined.fetch_add(1);
  if (worker < job.workers) job.take(worker);
}

void start_threads(Job& job) {
  std::vector<std::thread> own;
  own.reserve(job.workers - 1);
  for (int worker = 1; worker < job.workers; ++worker) {
    try {
      own.emplace_back([&job, worker] { job.take(worker); });
    } catch (...) {
      break;  // no more threads to be had: the ones that run do all the work
    }
  }
  job.take(0);
  for (auto& thread : own) thread.join();
}

}  // namespace

void run_tasks(int64_t tasks, int threads, void (*work)(void*, int64_t, int), void* context) {
  Job job{tasks, static_cast<int>(tasks < threads ? tasks : threads), work, context};
  if (job.workers <= 1) return job.take(0);
  // 0 threads: as many as torch uses. Another number would make the runtime end and start threads at every change.
  if (const Pool pool = lent.load()) return pool(join, &job, 0, 0);
  start_threads(job);
}

}  // namespace remix

// From now on tasks run on this pool; null: on threads of our own.
REMIX_API void remix_lend_threads(void* pool) { remix::lent = reinterpret_cast<remix::Pool>(pool); }
