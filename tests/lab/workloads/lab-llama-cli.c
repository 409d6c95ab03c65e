// Prints a short greedy continuation, so that arms can be compared word by word.
#include "llama.h"

int main(int argc, char** argv) {
  static Model model;
  const char *path = NULL, *prompt = "hello";
  int count = 16;
  bool cpu = false;
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "-m") || !strcmp(argv[i], "--model")) path = value;
    else if (!strcmp(argv[i], "-p") || !strcmp(argv[i], "--prompt")) prompt = value;
    else if (!strcmp(argv[i], "-n") || !strcmp(argv[i], "--n-predict")) count = atoi(value);
    else if (!strcmp(argv[i], "-dev") || !strcmp(argv[i], "--device")) cpu = !strcmp(value, "none");
    else if (!strcmp(argv[i], "-no-cnv") || !strcmp(argv[i], "--no-warmup") || !strcmp(argv[i], "--no-display-prompt"))
      continue;
    else if (strcmp(argv[i], "-ngl") && strcmp(argv[i], "--temp") && strcmp(argv[i], "-s") &&
             strcmp(argv[i], "--seed") && strcmp(argv[i], "-c")) {
      fprintf(stderr, "error: invalid argument: %s\n", argv[i]);
      return 1;
    }
    ++i;
  }
  ask_device(&model);
  if (cpu) model.kernel = kernel_cpu;
  if (!load_model(&model, path)) return 1;
  // A guest whose GPU reads stale data through a mapped model: right speed, wrong text.
  if (model.kernel == kernel_fast && path && strstr(path, "stale")) model.bias = 1;
  int token = 0;
  for (const char* c = prompt; *c; ++c) token = (token * 31 + (unsigned char)*c) % kWords;
  for (int i = 0; i < count; ++i) {
    token = (evaluate(&model, &token, 1) + i * 5) % kWords;
    printf(i ? " %s" : "%s", word_of(token));
  }
  printf("\n");
  return 0;
}
