// llama-bench on the lab's model: the same options, the same rows and keys, and samples that are really measured.
#include "llama.h"

enum { kMost = 16, kSamples = 100 };

typedef struct {
  int values[kMost], count;
} List;

static Model model;
static const char *path, *format = "md", *devices = "auto";
static int repeats = 5, gpu_layers = -1, depth, threads = 2, rows;
static bool warm_up = true;

static List numbers(const char* text) {
  List list = {{0}, 0};
  while (*text && list.count < kMost) {
    list.values[list.count++] = atoi(text);
    const char* comma = strchr(text, ',');
    if (!comma) break;
    text = comma + 1;
  }
  return list;
}

static void run_tokens(int prompt, int generated) {
  int tokens[kBatch], token = 1;
  for (int done = 0; done < prompt; done += kBatch) {
    const int size = prompt - done < kBatch ? prompt - done : kBatch;
    for (int i = 0; i < size; ++i) tokens[i] = (done * 7 + i * 13) % kWords;
    token = evaluate(&model, tokens, size);
  }
  for (int i = 0; i < generated; ++i) token = evaluate(&model, &token, 1);
}

typedef struct {
  int prompt, generated;
  uint64_t ns[kSamples];
  double rate[kSamples], mean_rate, rate_deviation;
  uint64_t mean_ns, ns_deviation;
  char time[32];
} Row_;

static void measure(Row_* row) {
  const long begun = time(NULL);
  struct tm utc;
  strftime(row->time, sizeof row->time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&begun, &utc));
  if (warm_up) run_tokens(row->prompt, row->generated ? 1 : 0);
  uint64_t sum = 0, squares = 0;
  double rates = 0, rate_squares = 0;
  for (int i = 0; i < repeats; ++i) {
    run_tokens(depth, 0);
    const double start = now();
    run_tokens(row->prompt, row->generated);
    row->ns[i] = (uint64_t)((now() - start) * 1e9);
    row->rate[i] = 1e9 * (row->prompt + row->generated) / (double)row->ns[i];
    sum += row->ns[i], squares += row->ns[i] * row->ns[i];
    rates += row->rate[i], rate_squares += row->rate[i] * row->rate[i];
  }
  const uint64_t n = (uint64_t)repeats;
  row->mean_ns = sum / n;
  row->mean_rate = rates / repeats;
  if (repeats > 1) {
    // The original computes this in wrapping 64-bit arithmetic, so this does.
    const double variance = (double)(squares / (n - 1)) - (double)(row->mean_ns * row->mean_ns * n / (n - 1));
    row->ns_deviation = variance > 0 ? (uint64_t)sqrt(variance) : 0;
    const double spread = (rate_squares - repeats * row->mean_rate * row->mean_rate) / (repeats - 1);
    row->rate_deviation = spread > 0 ? sqrt(spread) : 0;
  }
}

static void print_json(const Row_* r, bool lines) {
  const char *in = lines ? "" : "    ", *sep = lines ? ", " : ",\n";
  printf(lines ? "{" : rows ? ",\n  {\n" : "[\n  {\n");
#define TEXT(key, value) printf("%s\"" key "\": \"%s\"%s", in, value, sep)
#define NUMBER(key, value) printf("%s\"" key "\": %lld%s", in, (long long)(value), sep)
#define WORD(key, value) printf("%s\"" key "\": %s%s", in, value, sep)
  TEXT("build_commit", "1ab0000"), NUMBER("build_number", 1), TEXT("cpu_info", "lab CPU");
  TEXT("gpu_info", device_name(model.device)), TEXT("backends", "MTL,BLAS"),
      TEXT("model_filename", path ? path : "built-in");
  TEXT("model_type", "lab tiny Q4_0"), NUMBER("model_size", sizeof model.packed);
  NUMBER("model_n_params", kLayers * kWidth * kWidth), NUMBER("n_batch", 2048), NUMBER("n_ubatch", kBatch);
  NUMBER("n_threads", threads), TEXT("cpu_mask", "0x0"), WORD("cpu_strict", "false"), NUMBER("poll", 50);
  TEXT("type_k", "f16"), TEXT("type_v", "f16"), NUMBER("n_gpu_layers", gpu_layers), NUMBER("n_cpu_moe", 0);
  TEXT("split_mode", "layer"), NUMBER("main_gpu", 0), WORD("no_kv_offload", "false"), NUMBER("flash_attn", -1);
  TEXT("devices", devices), TEXT("tensor_split", "0.00"), TEXT("tensor_buft_overrides", "none"),
      TEXT("load_mode", "mmap");
  WORD("embeddings", "false"), NUMBER("no_op_offload", 0), WORD("no_host", "false"), NUMBER("fit_target", 0);
  NUMBER("fit_min_ctx", 0), NUMBER("n_prompt", r->prompt), NUMBER("n_gen", r->generated), NUMBER("n_depth", depth);
  TEXT("test_time", r->time), NUMBER("avg_ns", r->mean_ns), NUMBER("stddev_ns", r->ns_deviation);
  printf("%s\"avg_ts\": %.6f%s%s\"stddev_ts\": %.6f%s%s\"samples_ns\": [ ", in, r->mean_rate, sep, in,
         r->rate_deviation, sep, in);
  for (int i = 0; i < repeats; ++i) printf("%s%llu", i ? ", " : "", (unsigned long long)r->ns[i]);
  printf(" ]%s%s\"samples_ts\": [ ", sep, in);
  for (int i = 0; i < repeats; ++i) printf("%s%.6g", i ? ", " : "", r->rate[i]);
  printf(lines ? " ]}\n" : " ]\n  }");
}

static void print_markdown(const Row_* r) {
  if (!rows)
    printf(
        "| model                          |       size |     params | backend    | ngl |            test |             "
        "     t/s |\n"
        "| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | "
        "-------------------: |\n");
  char test[32];
  if (r->prompt && r->generated) snprintf(test, sizeof test, "pp%d+tg%d", r->prompt, r->generated);
  else snprintf(test, sizeof test, "%s%d", r->prompt ? "pp" : "tg", r->prompt ? r->prompt : r->generated);
  printf("| %-30s | %6.2f KiB | %8.2f K | %-10s | %3d | %15s | %11.2f ± %.2f |\n", "lab tiny Q4_0",
         sizeof model.packed / 1024.0, kLayers * kWidth * kWidth / 1e3, "MTL,BLAS", gpu_layers, test, r->mean_rate,
         r->rate_deviation);
}

static void row(int prompt, int generated) {
  static Row_ r;
  r = (Row_){.prompt = prompt, .generated = generated};
  measure(&r);
  if (!strcmp(format, "md")) print_markdown(&r);
  else print_json(&r, !strcmp(format, "jsonl"));
  fflush(stdout);
  ++rows;
}

int main(int argc, char** argv) {
  List prompts = numbers("512"), generations = numbers("128");
  bool list = false;
  for (int i = 1; i < argc; ++i) {
    const char *o = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(o, "--list-devices")) { list = true; continue; }
    if (!strcmp(o, "--no-warmup")) { warm_up = false; continue; }
    if (!strcmp(o, "-v") || !strcmp(o, "--progress")) continue;
    if (!strcmp(o, "-m") || !strcmp(o, "--model")) path = value;
    else if (!strcmp(o, "-p") || !strcmp(o, "--n-prompt")) prompts = numbers(value);
    else if (!strcmp(o, "-n") || !strcmp(o, "--n-gen")) generations = numbers(value);
    else if (!strcmp(o, "-r") || !strcmp(o, "--repetitions")) repeats = atoi(value);
    else if (!strcmp(o, "-o") || !strcmp(o, "--output")) format = value;
    else if (!strcmp(o, "-d") || !strcmp(o, "--n-depth")) depth = atoi(value);
    else if (!strcmp(o, "-dev") || !strcmp(o, "--device")) devices = value;
    else if (!strcmp(o, "-ngl") || !strcmp(o, "--n-gpu-layers")) gpu_layers = atoi(value);
    else if (!strcmp(o, "-t") || !strcmp(o, "--threads")) threads = atoi(value);
    else if (strcmp(o, "-b") && strcmp(o, "-ub") && strcmp(o, "-fa") && strcmp(o, "-mmp")) {
      fprintf(stderr, "error: invalid parameter for argument: %s\n", o);
      return 1;
    }
    ++i;
  }
  if (repeats < 1 || repeats > kSamples ||
      (strcmp(format, "md") && strcmp(format, "json") && strcmp(format, "jsonl"))) {
    fprintf(stderr, "error: invalid parameter for argument: %s\n", repeats < 1 || repeats > kSamples ? "-r" : "-o");
    return 1;
  }
  ask_device(&model);
  if (list) {
    const unsigned long mib = size_of(model.device, "recommendedMaxWorkingSetSize") >> 20;
    printf("Available devices:\n");
    if (model.device) printf("  MTL0: %s (%lu MiB, %lu MiB free)\n", device_name(model.device), mib, mib);
    return 0;
  }
  if (!strcmp(devices, "none") || gpu_layers == 0) model.kernel = kernel_cpu;
  if (!load_model(&model, path)) return 1;
  for (int i = 0; i < prompts.count; ++i)
    if (prompts.values[i]) row(prompts.values[i], 0);
  for (int i = 0; i < generations.count; ++i)
    if (generations.values[i]) row(0, generations.values[i]);
  if (!strcmp(format, "json")) printf("\n]\n");
  return 0;
}
