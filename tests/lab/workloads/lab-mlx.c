// Stands in for a Python with MLX-LM that runs templates/mlx_harness.py: takes the harness's words, prints its JSON with figures that
// are really measured, and the same text as the lab's llama-cli would. MLX's kernels do not depend on the device's family.
#include "llama.h"

static Model model;

static double run_tokens(int prompt, int generated) {
  int tokens[kBatch], token = 1;
  const double start = now();
  for (int done = 0; done < prompt; done += kBatch) {
    const int size = prompt - done < kBatch ? prompt - done : kBatch;
    for (int i = 0; i < size; ++i) tokens[i] = (done * 7 + i * 13) % kWords;
    token = evaluate(&model, tokens, size);
  }
  for (int i = 0; i < generated; ++i) token = evaluate(&model, &token, 1);
  return (prompt + generated) / (now() - start);
}

static void write_text(const char* prompt, int count) {
  int token = 0;
  for (const char* c = prompt; *c; ++c) token = (token * 31 + (unsigned char)*c) % kWords;
  for (int i = 0; i < count; ++i) {
    token = (evaluate(&model, &token, 1) + i * 5) % kWords;
    printf(i ? " %s" : "%s", word_of(token));
  }
  printf("\n");
}

static bool is_model(const char* folder) {
  char path[1024];
  snprintf(path, sizeof path, "%s/config.json", folder);
  FILE* file = fopen(path, "r");
  if (file) fclose(file);
  return file != NULL;
}

int main(int argc, char** argv) {
  const char *folder = "", *text = NULL;
  int prompt = 512, generated = 128, repeats = 10;
  bool cpu = false;
  if (argc < 2 || !strstr(argv[1], "mlx_harness.py")) {
    fprintf(stderr, "lab-mlx: runs nothing but mlx_harness.py\n");
    return 2;
  }
  for (int i = 2; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--cpu")) { cpu = true; continue; }
    if (!strcmp(argv[i], "--no-warmup")) continue;
    if (!strcmp(argv[i], "--model")) folder = value;
    else if (!strcmp(argv[i], "--text")) text = value;
    else if (!strcmp(argv[i], "-p")) prompt = atoi(value);
    else if (!strcmp(argv[i], "-n")) generated = atoi(value);
    else if (!strcmp(argv[i], "-r")) repeats = atoi(value);
    else {
      fprintf(stderr, "mlx_harness.py: error: unrecognized arguments: %s\n", argv[i]);
      return 2;
    }
    ++i;
  }
  if (!is_model(folder)) {
    fprintf(stderr, "FileNotFoundError: %s/config.json\n", folder);
    return 1;
  }
  ask_device(&model);
  if (!load_model(&model, NULL)) return 1;
  model.kernel = cpu ? kernel_cpu : kernel_fast;
  if (cpu) model.bias = 0;
  if (text) {
    write_text(text, generated);
    return 0;
  }
  const char* name = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
  printf("{\n  \"schema_version\": 1,\n  \"runtime\": {\"python\": \"3.12.0\", \"mlx\": \"0.0.1\", \"mlx_lm\": \"0.0.1\", \"platform\": \"lab\"},\n");
  printf("  \"model\": {\"id\": \"%s\", \"revision\": \"\", \"path\": \"%s\"},\n", name, name);
  printf("  \"configuration\": {\"prompt_tokens\": %d, \"generation_tokens\": %d, \"repeats\": %d, \"seed\": 42, \"eos_stopping\": false%s},\n", prompt,
         generated, repeats, cpu ? ", \"devices\": \"none\"" : "");
  printf("  \"warmup\": null,\n  \"samples\": [\n");
  run_tokens(prompt, generated);
  for (int i = 0; i < repeats; ++i) {
    const double prompt_rate = run_tokens(prompt, 0), rate = run_tokens(0, generated);
    printf("    {\"prompt_tokens\": %d, \"prompt_tps\": %.6f, \"generation_tokens\": %d, \"generation_tps\": %.6f}%s\n", prompt, prompt_rate, generated, rate,
           i + 1 < repeats ? "," : "");
  }
  printf("  ]\n}\n");
  return 0;
}
