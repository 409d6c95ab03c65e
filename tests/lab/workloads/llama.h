#pragma once

// A very small "language model": a few layers of 4-bit weights whose values stay whole numbers, so that every kernel
// gives the same text. Which kernel runs depends on what the device says, by the questions that ggml asks. The
// kernels differ in the work they do, and all figures that the programs print are measured.
//
//   fallback   what a stock guest gets: each weight unpacked at each use, layer by layer across the bus and back
//   cpu        plain loops, weights unpacked row by row
//   fast       weights unpacked once at load, whole vectors at a time

#include "metal.h"

enum { kWidth = 128, kLayers = 4, kBlock = 32, kBatch = 32, kWords = 64 };

typedef struct {
  float scale;
  unsigned char nibbles[kBlock / 2];
} Block;

typedef enum { kernel_fallback, kernel_cpu, kernel_fast } Kernel;

typedef struct {
  Kernel kernel;
  id device;
  bool reduction, matrix, bfloat;
  float bias;  // 0 if the device computes right
  long file_size;
  Block packed[kLayers][kWidth][kWidth / kBlock];
  int unpacked[kLayers][kWidth][kWidth];  // transposed: [input][output]; whole numbers, as matrix units like them
} Model;

typedef float Row[kWidth];

static inline double now(void) {
  struct timespec t;
  clock_gettime(6, &t);
  return (double)t.seconds + (double)t.nanoseconds * 1e-9;
}

static inline float weight_of(const Block* block, int index) {
  const int nibble = index % 2 ? block->nibbles[index / 2] >> 4 : block->nibbles[index / 2] & 15;
  return block->scale * (float)(nibble - 8);
}

static __attribute__((noinline)) float fetch_weight(const Block* row, int k) {
  return weight_of(&row[k / kBlock], k % kBlock);
}
static __attribute__((noinline)) void cross_bus(Row* to, Row* from, int rows) {
  memcpy(to, from, sizeof(Row) * (size_t)rows);
}

static void layer_fallback(const Model* m, int layer, Row* in, Row* out, int rows) {
  static Row there[kBatch];
  cross_bus(there, in, rows);
  for (int t = 0; t < rows; ++t)
    for (int o = 0; o < kWidth; ++o) {
      float sum = 0;
      for (int k = 0; k < kWidth; ++k) sum += fetch_weight(m->packed[layer][o], k) * there[t][k];
      out[t][o] = sum;
    }
  cross_bus(there, out, rows);
}

static void layer_cpu(const Model* m, int layer, Row* in, Row* out, int rows) {
  for (int o = 0; o < kWidth; ++o) {
    Row weights;
    for (int k = 0; k < kWidth; ++k) weights[k] = weight_of(&m->packed[layer][o][k / kBlock], k % kBlock);
    for (int t = 0; t < rows; ++t) {
      float sum = 0;
      for (int k = 0; k < kWidth; ++k) sum += weights[k] * in[t][k];
      out[t][o] = sum;
    }
  }
}

static void layer_fast(const Model* m, int layer, Row* in, Row* out, int rows) {
  for (int t = 0; t < rows; ++t) {
    int sums[kWidth];
    memset(sums, 0, sizeof sums);
    for (int k = 0; k < kWidth; ++k) {
      const int x = (int)in[t][k];
      for (int o = 0; o < kWidth; ++o) sums[o] += m->unpacked[layer][k][o] * x;
    }
    for (int o = 0; o < kWidth; ++o) out[t][o] = (float)sums[o];
  }
}

// Runs up to kBatch tokens through the model; returns the token that follows the last one.
static int evaluate(const Model* m, const int* tokens, int count) {
  static Row a[kBatch], b[kBatch];
  for (int t = 0; t < count; ++t)
    for (int k = 0; k < kWidth; ++k) a[t][k] = (float)((tokens[t] * 31 + k * 7) % 15 - 7);
  for (int layer = 0; layer < kLayers; ++layer) {
    if (m->kernel == kernel_fast) layer_fast(m, layer, a, b, count);
    else if (m->kernel == kernel_cpu) layer_cpu(m, layer, a, b, count);
    else layer_fallback(m, layer, a, b, count);
    for (int t = 0; t < count; ++t)
      for (int k = 0; k < kWidth; ++k) a[t][k] = (float)(((int)(b[t][k] + m->bias) % 15 + 15) % 15 - 7);
  }
  int sum = 0;
  for (int k = 0; k < kWidth; ++k) sum += ((int)a[count - 1][k] + 7) * (k + 1);
  return sum % kWords;
}

static void print_family(const char* group, const char* name, long value) {
  fprintf(stderr, "ggml_metal_device_init: GPU family: MTLGPUFamily%s%s%s(%ld)\n", group, name,
          strlen(group) < 6 ? "  " : " ", value);
}

static void ask_device(Model* m) {
  id d = m->device = default_device();
  if (!d) {
    fputs("ggml_metal_device_init: error: no Metal device\n", stderr);
    m->kernel = kernel_cpu;
    return;
  }
  m->reduction = supports(d, 1007) || supports(d, 5001);
  m->matrix = supports(d, 1007);
  m->bfloat = supports(d, 5001) || supports(d, 1006);
  m->kernel = m->reduction && m->matrix ? kernel_fast : kernel_fallback;
  fprintf(stderr, "ggml_metal_device_init: GPU name:   MTL0 (%s)\n", device_name(d));
  static const struct { const char* group; long first, last; } groups[] = {
      {"Apple", 1001, 1021}, {"Common", 3001, 3006}, {"Metal", 5001, 5006}};
  for (int g = 0; g < 3; ++g)
    for (long f = groups[g].last; f >= groups[g].first; --f)
      if (supports(d, f)) {
        char number[8];
        snprintf(number, sizeof number, "%ld", f - groups[g].first + (g == 2 ? 3 : 1));
        print_family(groups[g].group, number, f);
        break;
      }
  const char* words[] = {"false", "true"};
  fprintf(stderr, "ggml_metal_device_init: simdgroup reduction   = %s\n", words[m->reduction]);
  fprintf(stderr, "ggml_metal_device_init: simdgroup matrix mul. = %s\n", words[m->matrix]);
  fprintf(stderr, "ggml_metal_device_init: has unified memory    = true\n");
  fprintf(stderr, "ggml_metal_device_init: has bfloat            = %s\n", words[m->bfloat]);
  fprintf(stderr, "ggml_metal_device_init: has tensor            = false\n");
  fprintf(stderr, "ggml_metal_device_init: use residency sets    = true\n");
  fprintf(stderr, "ggml_metal_device_init: use shared buffers    = true\n");
  fprintf(stderr, "ggml_metal_device_init: recommendedMaxWorkingSetSize  = %.2f MB\n",
          (double)size_of(d, "recommendedMaxWorkingSetSize") / 1e6);
  (void)size_of(d, "maxBufferLength");
  (void)size_of(d, "maxThreadgroupMemoryLength");
}

// Weights come from the model file's own bytes. Returns false, with a message, for a file that is no model.
static bool load_model(Model* m, const char* path) {
  unsigned seed = 2463534242u;
  if (path) {
    char head[4096];
    FILE* file = fopen(path, "r");
    size_t got = file ? fread(head, 1, sizeof head, file) : 0;
    m->file_size = (long)got;
    if (got < 8 || memcmp(head, "GGUF", 4) != 0) {
      fprintf(stderr, "llama_model_load: error loading model: %s\n",
              file ? "invalid magic, expected 'GGUF'" : strerror(errno));
      return false;
    }
    do {
      for (size_t i = 0; i < got; ++i) seed = seed * 16777619u ^ (unsigned char)head[i];
    } while ((got = fread(head, 1, sizeof head, file)) > 0 && (m->file_size += (long)got));
    fclose(file);
    if (!seed) seed = 1;
  }
  for (int layer = 0; layer < kLayers; ++layer)
    for (int o = 0; o < kWidth; ++o)
      for (int k = 0; k < kWidth; k += 2) {
        Block* block = &m->packed[layer][o][k / kBlock];
        seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
        block->scale = 1;
        block->nibbles[k % kBlock / 2] = (unsigned char)(seed >> 11);
        m->unpacked[layer][k][o] = (int)weight_of(block, k % kBlock);
        m->unpacked[layer][k + 1][o] = (int)weight_of(block, k % kBlock + 1);
      }
  if (m->kernel == kernel_fast) m->bias = device_sum(m->device) - 528.0F;
  return true;
}

static const char* word_of(int token) {
  static const char* words[16] = {"the", "guest",   "asks", "a",    "device", "what", "it", "can",
                                  "and", "answers", "with", "care", "so",     "work", "is", "done"};
  return words[token % 16];
}
