// Attention of a few query rows over packed keys and values: the arithmetic core, for Metal, CUDA and plain C++.
//
// The program that includes this text defines, first:
//   KK_DIM, KK_VALUE_DIM  head sizes of keys and values        KK_BITS     bits of a field
//   KK_THREADS            threads of a group                   KK_BYTES    a pointer to const bytes
//   KK_SHARED             memory of the group                  KK_SYNC     wait for the group
//   KK_FN                 what precedes a function             KK_LOCAL    memory of a thread, in pointers
//   KK_EXP, KK_EXP2       e^x and 2^x
// and, where the body (below KK_BODY) stands:
//   kk_thread, kk_split, kk_row   which thread of the group, which split of the tokens, which query row
//   queries   float [rows, KK_DIM], rotated and scaled; keys, values: bytes [kv heads, length, row bytes]
//   sizes     int: length, splits, query rows of a kv head, rows of a query head, causal
//   out_values float [rows, splits, KK_VALUE_DIM], out_stats float [rows, splits, 2]: largest score, sum of weights
//
// A packed row is laid out as engine/codec/spec.py says; the steps of kk_point are those of engine/codec/cosets.py.

#ifndef KK_CORE
#define KK_CORE

#define KK_LOWEST (-1e30f)
#define KK_ROW_BYTES(dim) (2 + ((dim) / 8 + 7) / 8 + (dim) * KK_BITS / 8)
#define KK_BLOCKS (KK_DIM / 8)
#define KK_VALUE_BLOCKS (KK_VALUE_DIM / 8)

// The field of coordinate k of a block.
KK_FN int kk_field(KK_BYTES row, int dim, int block, int k) {
  int at = 2 + (dim / 8 + 7) / 8;
  int index = k * (dim / 8) + block;
  int field = 0;
  for (int width = 4; width >= 1; width /= 2) {
    if (KK_BITS & width) {
      int size = dim * width / 8;
      int value = (row[at + index % size] >> (width * (index / size))) & ((1 << width) - 1);
      field |= value << (KK_BITS & (width - 1));
      at += size;
    }
  }
  return field;
}

// 2^(k / 32) of a block: the vector's scale, coarser by half an octave where the block's beta bit is set.
KK_FN float kk_step(KK_BYTES row, int block) {
  int scale = row[0] | (row[1] << 8);
  scale -= (scale >> 15) << 16;
  int beta = (row[2 + block / 8] >> (block % 8)) & 1;
  return scale == -32768 ? 0.0f : KK_EXP2((float)(scale + 16 * beta) * (1.0f / 32));
}

// The codeword of a block, times 16: the point of its coset in the shifted Voronoi cell of q E8.
KK_FN void kk_point(KK_BYTES row, int dim, int block, KK_LOCAL int *point) {
  const int shift[8] = {0, 1, 2, 3, 4, 5, 6, 8};
  const int q = 1 << KK_BITS, period = 16 * q, middle = 8 * q;
  int some[8];
  int parity = 0, sum = 0;
  for (int k = 0; k < 8; k++) {
    int field = kk_field(row, dim, block, k);
    if (k == 0) {
      parity = field >> (KK_BITS - 1);
      field &= q / 2 - 1;
    }
    if (k == 7) field = 2 * field + (sum & 1);
    sum += field;
    some[k] = 16 * field + 8 * parity - shift[k];
  }
  int best_norm = 0;
  for (int coset = 0; coset < 2; coset++) {
    int tried[8];
    int wraps = 0, worst = 0, norm = 0;
    for (int k = 0; k < 8; k++) {
      int ahead = some[k] + (coset ? 0 : middle);
      tried[k] = (ahead & (period - 1)) - middle;
      wraps += (ahead - middle - tried[k]) / period;
      norm += tried[k] * tried[k];
      int size = tried[k] < 0 ? -tried[k] : tried[k];
      int most = tried[worst] < 0 ? -tried[worst] : tried[worst];
      if (size > most) worst = k;
    }
    if (wraps & 1) {
      int most = tried[worst] < 0 ? -tried[worst] : tried[worst];
      norm += period * (period - 2 * most);
      tried[worst] += tried[worst] > 0 ? -period : period;
    }
    if (coset == 0 || norm < best_norm) {
      best_norm = norm;
      for (int k = 0; k < 8; k++) point[k] = tried[k] + shift[k];
    }
  }
}

#endif  // KK_CORE

#ifdef KK_BODY
KK_SHARED float kk_query[KK_DIM];
KK_SHARED float kk_scores[KK_THREADS];
KK_SHARED float kk_sums[KK_THREADS * 8];

const int length = sizes[0], splits = sizes[1], of_head = sizes[2], rows = sizes[3], causal = sizes[4];
const int head = (int)kk_row / of_head;
const int seen = causal ? length - rows + (int)kk_row % rows + 1 : length;
const int first = (int)((long)length * (int)kk_split / splits);
const int last = (int)((long)length * ((int)kk_split + 1) / splits);
const int self = (int)kk_thread;
const int lanes = KK_THREADS / KK_VALUE_BLOCKS, lane = self / KK_VALUE_BLOCKS, own = self % KK_VALUE_BLOCKS;
KK_BYTES key_rows = keys + (size_t)head * length * KK_ROW_BYTES(KK_DIM);
KK_BYTES value_rows = values + (size_t)head * length * KK_ROW_BYTES(KK_VALUE_DIM);

for (int i = self; i < KK_DIM; i += KK_THREADS) kk_query[i] = queries[(size_t)kk_row * KK_DIM + i];
float largest = KK_LOWEST, total = 0;
float sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
KK_SYNC;

for (int start = first; start < last; start += KK_THREADS) {
  // One thread, one token: its score.
  int token = start + self;
  float score = KK_LOWEST;
  if (token < last && token < seen) {
    score = 0;
    KK_BYTES row = key_rows + (size_t)token * KK_ROW_BYTES(KK_DIM);
    for (int block = 0; block < KK_BLOCKS; block++) {
      int point[8];
      kk_point(row, KK_DIM, block, point);
      float dot = 0;
      for (int k = 0; k < 8; k++) dot += kk_query[k * KK_BLOCKS + block] * (float)point[k];
      score += dot * kk_step(row, block) * (1.0f / 16);
    }
  }
  kk_scores[self] = score;
  KK_SYNC;
  float highest = largest;
  for (int i = 0; i < KK_THREADS; i++) highest = kk_scores[i] > highest ? kk_scores[i] : highest;
  KK_SYNC;
  kk_scores[self] = score > KK_LOWEST / 2 ? KK_EXP(score - highest) : 0;
  KK_SYNC;
  float fade = KK_EXP(largest - highest);
  largest = highest;
  total *= fade;
  for (int i = 0; i < KK_THREADS; i++) total += kk_scores[i];
  // One thread, one block of the values, every lanes-th token.
  for (int k = 0; k < 8; k++) sums[k] *= fade;
  for (int i = lane; i < KK_THREADS && start + i < last && lane < lanes; i += lanes) {
    KK_BYTES row = value_rows + (size_t)(start + i) * KK_ROW_BYTES(KK_VALUE_DIM);
    float weight = kk_scores[i] * kk_step(row, own) * (1.0f / 16);
    int point[8];
    kk_point(row, KK_VALUE_DIM, own, point);
    for (int k = 0; k < 8; k++) sums[k] += weight * (float)point[k];
  }
  KK_SYNC;
}

for (int k = 0; k < 8; k++) kk_sums[self * 8 + k] = lane < lanes ? sums[k] : 0;
KK_SYNC;
const size_t part = (size_t)kk_row * splits + kk_split;
for (int i = self; i < KK_VALUE_DIM; i += KK_THREADS) {
  float sum = 0;
  for (int other = 0; other < lanes; other++)
    sum += kk_sums[(other * KK_VALUE_BLOCKS + i % KK_VALUE_BLOCKS) * 8 + i / KK_VALUE_BLOCKS];
  out_values[part * KK_VALUE_DIM + i] = sum;
}
if (self == 0) {
  out_stats[part * 2] = largest;
  out_stats[part * 2 + 1] = total;
}
#endif  // KK_BODY
