// A small inference server: answers over HTTP on --port, or works by itself without one, until SIGTERM. As `ollama serve` it
// listens on the port of OLLAMA_HOST, holds one model of its own, and answers as Ollama does.
#include "llama.h"

static Model model;
static Kernel best;  // what the device allows; a request may ask for less
static volatile bool stopping;

static void stop(int number) {
  (void)number;
  stopping = true;
}

typedef struct {
  int prompt, generated;
  double prompt_seconds, generation_seconds;
  char text[4096];
} Run;

static Run generate(int prompt, int count) {
  Run run = {prompt, count, 0, 0, ""};
  int tokens[kBatch], token = 0;
  double start = now();
  for (int done = 0; done < prompt; done += kBatch) {
    const int size = prompt - done < kBatch ? prompt - done : kBatch;
    for (int i = 0; i < size; ++i) tokens[i] = (done + i) % kWords;
    token = evaluate(&model, tokens, size);
  }
  run.prompt_seconds = now() - start;
  start = now();
  size_t used = 0;
  for (int i = 0; i < count; ++i) {
    token = evaluate(&model, &token, 1);
    if (used < sizeof run.text - 16)
      used += (size_t)snprintf(run.text + used, sizeof run.text - used, used ? " %s" : "%s", word_of(token));
  }
  run.generation_seconds = now() - start;
  return run;
}

static int number_after(const char* text, const char* key, int fallback) {
  const char* at = strstr(text, key);
  int value = fallback;
  if (at && sscanf(at + strlen(key), "%*[\": ]%d", &value) != 1) value = fallback;
  return value < 1 ? fallback : value > 4096 ? 4096 : value;
}

// One token for each word of a JSON string.
static int words_in(const char* text) {
  const char* at = strchr(text, '"');
  int words = 0;
  for (bool inside = false; at && *++at && *at != '"'; inside = *at != ' ')
    if (*at != ' ' && !inside) ++words;
  return words ? words : 1;
}

static void reply(int client, const char* status, const char* body) {
  char head[256];
  const int size =
      snprintf(head, sizeof head,
               "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %lu\r\nConnection: close\r\n\r\n",
               status, (unsigned long)strlen(body));
  if (write(client, head, (size_t)size) < 0 || write(client, body, strlen(body)) < 0) return;
}

static void serve(int client) {
  static char request[65536];
  size_t used = 0;
  long got;
  struct pollfd wait = {client, 1, 0};
  while (used < sizeof request - 1 && poll(&wait, 1, 2000) > 0 &&
         (got = read(client, request + used, sizeof request - 1 - used)) > 0) {
    used += (size_t)got;
    request[used] = 0;
    const char* body = strstr(request, "\r\n\r\n");
    if (body &&
        (long)strlen(body + 4) >= number_after(request, "ontent-Length", 1) - (strncmp(request, "GET", 3) ? 0 : 1))
      break;
  }
  request[used] = 0;
  static char out[6000];
  const char* prompt = strstr(request, "\"prompt\"");
  const int prompt_tokens = prompt ? words_in(prompt + 9) : 1;
  if (!strncmp(request, "GET /health", 11)) return reply(client, "200 OK", "{\"status\":\"ok\"}");
  if (!strncmp(request, "GET /props", 10)) return reply(client, "200 OK", "{\"build_info\":\"b1-1ab0000\"}");
  if (!strncmp(request, "GET /api/version", 16)) return reply(client, "200 OK", "{\"version\":\"0.0.1\"}");
  if (!strncmp(request, "GET /api/tags", 13))
    return reply(client, "200 OK", "{\"models\":[{\"name\":\"tiny:latest\",\"model\":\"tiny:latest\",\"digest\":\"0123456789ab\"}]}");
  if (!strncmp(request, "POST /completion", 16)) {
    const Run r = generate(prompt_tokens, number_after(request, "n_predict", 16));
    snprintf(out, sizeof out,
             "{\"content\":\"%s\",\"timings\":{\"prompt_n\":%d,\"prompt_ms\":%.9g,\"prompt_per_second\":%.9g,"
             "\"predicted_n\":%d,"
             "\"predicted_ms\":%.9g,\"predicted_per_second\":%.9g}}",
             r.text, r.prompt, r.prompt_seconds * 1e3, r.prompt / r.prompt_seconds, r.generated,
             r.generation_seconds * 1e3, r.generated / r.generation_seconds);
    return reply(client, "200 OK", out);
  }
  if (!strncmp(request, "POST /api/generate", 18)) {  // the reply of Ollama, durations in nanoseconds
    if (!strstr(request, "\"tiny\"") && strstr(request, "\"model\""))
      return reply(client, "404 Not Found", "{\"error\":\"model not found, try pulling it first\"}");
    model.kernel = strstr(request, "\"num_gpu\":0") ? kernel_cpu : best;
    const Run r = generate(prompt_tokens, number_after(request, "num_predict", 16));
    snprintf(
        out, sizeof out,
        "{\"model\":\"tiny\",\"response\":\"%s\",\"done\":true,\"context\":[1,2],\"prompt_eval_count\":%d,\"prompt_eval_duration\":%.0f,\"eval_count\":%d,"
        "\"eval_duration\":%.0f}",
        r.text, r.prompt, r.prompt_seconds * 1e9, r.generated, r.generation_seconds * 1e9);
    return reply(client, "200 OK", out);
  }
  reply(client, "404 Not Found", "{\"error\":{\"code\":404,\"message\":\"File Not Found\"}}");
}

static int listen_on(int port) {
  const int fd = socket(2, 1, 0), yes = 1;
  struct sockaddr_in address = {
      sizeof address, 2, (uint16_t)((port >> 8 & 0xff) | (port & 0xff) << 8), 0x0100007f, {0}};
  setsockopt(fd, 0xffff, 0x4, &yes, sizeof yes);
  if (fd < 0 || bind(fd, &address, sizeof address) != 0 || listen(fd, 16) != 0) {
    fprintf(stderr, "main: couldn't bind to port %d: %s\n", port, strerror(errno));
    return -1;
  }
  return fd;
}

int main(int argc, char** argv) {
  const char* path = NULL;
  int port = 0, fd = -1;
  bool once = false, cpu = false;
  const char* host = getenv("OLLAMA_HOST");
  if (argc == 2 && !strcmp(argv[1], "serve")) {
    const char* colon = host ? strrchr(host, ':') : NULL;
    port = colon ? atoi(colon + 1) : 11434;
    argc = 1;
  }
  for (int i = 1; i < argc; ++i) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--once")) { once = true; continue; }
    if (!strcmp(argv[i], "-m") || !strcmp(argv[i], "--model")) path = value;
    else if (!strcmp(argv[i], "--port")) port = atoi(value);
    else if (!strcmp(argv[i], "-dev")) cpu = !strcmp(value, "none");
    else if (strcmp(argv[i], "--host") && strcmp(argv[i], "-ngl") && strcmp(argv[i], "-c")) {
      fprintf(stderr, "error: invalid argument: %s\n", argv[i]);
      return 1;
    }
    ++i;
  }
  ask_device(&model);
  best = model.kernel;
  if (cpu) model.kernel = kernel_cpu;
  if (!load_model(&model, path)) return 1;
  if (once) {
    const Run r = generate(64, 64);
    printf("prompt %.2f tokens/s, generation %.2f tokens/s\n", r.prompt / r.prompt_seconds,
           r.generated / r.generation_seconds);
    return 0;
  }
  signal(SIGTERM, stop);
  signal(SIGINT, stop);
  if (port && (fd = listen_on(port)) < 0) return 1;
  if (port) printf("main: server is listening on http://127.0.0.1:%d\n", port);
  else printf("main: server is listening on nothing, working by itself\n");
  fflush(stdout);
  while (!stopping) {
    struct pollfd wait = {fd, 1, 0};
    if (poll(&wait, port ? 1 : 0, 200) > 0) {
      const int client = accept(fd, NULL, NULL);
      if (client >= 0) serve(client), close(client);
    } else if (!port) {
      generate(1, 1);
    }
  }
  printf("main: cleaning up before exit\n");
  return 0;
}
