// Runs the shipped kernel's text on the CPU: a group's threads are real threads, its barrier a real barrier.
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#define KK_BYTES const uint8_t *
#define KK_SHARED static
#define KK_SYNC barrier.arrive_and_wait()
#define KK_FN static inline
#define KK_LOCAL
#define KK_EXP(x) std::exp((float)(x))
#define KK_EXP2(x) std::exp2((float)(x))
#include KK_FILE
#define KK_BODY

static void group_thread(std::barrier<> &barrier, int kk_thread, int kk_split, int kk_row, const float *queries,
                         const uint8_t *keys, const uint8_t *values, const int *sizes, float *out_values,
                         float *out_stats) {
#include KK_FILE
}

extern "C" void run(int groups, const float *queries, const uint8_t *keys, const uint8_t *values,
                    const int *sizes, float *out_values, float *out_stats) {
  for (int row = 0; row < groups; row++)
    for (int split = 0; split < sizes[1]; split++) {
      std::barrier<> barrier(KK_THREADS);
      std::vector<std::thread> threads;
      for (int thread = 0; thread < KK_THREADS; thread++)
        threads.emplace_back(group_thread, std::ref(barrier), thread, split, row, queries, keys, values, sizes,
                             out_values, out_stats);
      for (auto &thread : threads) thread.join();
    }
}

extern "C" void points(int count, const uint8_t *rows, int *out) {
  for (int i = 0; i < count; i++)
    for (int block = 0; block < KK_BLOCKS; block++)
      kk_point(rows + (size_t)i * KK_ROW_BYTES(KK_DIM), KK_DIM, block, out + (i * KK_BLOCKS + block) * 8);
}
