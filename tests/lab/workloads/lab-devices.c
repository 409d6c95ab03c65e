// Creates devices on several threads at once and prints what each class of device answers.
//   lab-devices [THREADS [ROUNDS]]
#include "metal.h"

static int rounds = 1;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int wrong, created;
static bool expected_apple7;

static void* create(void* unused) {
  (void)unused;
  for (int i = 0; i < rounds; ++i) {
    id device = default_device();
    const bool apple7 = supports(device, 1007);
    const bool metal3 = supports(device, 5001);
    pthread_mutex_lock(&gate);
    if (created++ == 0) expected_apple7 = apple7;
    if (apple7 != expected_apple7 || metal3) ++wrong;
    pthread_mutex_unlock(&gate);
  }
  return NULL;
}

static void print_device(const char* role, id device) {
  printf("%s %s: 1005=%d 1006=%d 1007=%d 1009=%d 1010=%d 2002=%d 3003=%d 5001=%d memory=%lu\n", role,
         class_getName(object_getClass(device)), supports(device, 1005), supports(device, 1006), supports(device, 1007),
         supports(device, 1009), supports(device, 1010), supports(device, 2002), supports(device, 3003),
         supports(device, 5001), size_of(device, "maxThreadgroupMemoryLength"));
}

int main(int argc, char** argv) {
  pthread_t threads[64];
  int count = argc > 1 ? atoi(argv[1]) : 4;
  if (argc > 2) rounds = atoi(argv[2]);
  if (count < 1 || count > 64) return 2;
  metal_framework();
  for (int i = 0; i < count; ++i) pthread_create(&threads[i], NULL, create, NULL);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  printf("created=%d inconsistent=%d\n", created, wrong);
  if (default_device()) print_device("default", default_device());
  const unsigned long listed = device_count();
  for (unsigned long i = 0; i < listed; ++i) print_device("listed", device_at(i));
  return wrong ? 1 : 0;
}
