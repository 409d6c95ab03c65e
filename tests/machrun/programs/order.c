// One text for several images: prints its name when it is initialised, and again from main.
extern int printf(const char*, ...);
extern void* dlopen(const char*, int);
extern void* dlsym(void*, const char*);
extern char* dlerror(void);
extern int strcmp(const char*, const char*);
extern char* getenv(const char*);

#define NAME_TEXT_(x) #x
#define NAME_TEXT(x) NAME_TEXT_(x)
__attribute__((constructor)) static void begin(void) { printf("init %s\n", NAME_TEXT(NAME)); }

#if defined(NEEDS)
extern int needed_value(void);
#endif
#if defined(PROVIDES)
static int table[3] = {10, 20, 30};
static int* pointer = &table[1];  // needs rebasing
__attribute__((visibility("default"))) int needed_value(void) { return *pointer + 1; }
#endif
#if defined(RESTRICTED)
__attribute__((used, section("__RESTRICT,__restrict"))) static int restricted;
#endif

#if defined(PROGRAM)
int main(int argc, char** argv) {
  printf("main %s\n", argv[0]);
  for (int i = 1; i + 1 < argc && !strcmp(argv[i], "--dlopen"); i += 2) {
    void* library = dlopen(argv[i + 1], 1);
    if (!library) printf("dlopen: %s\n", dlerror());
    else printf("dlsym: %d\n", ((int (*)(void))dlsym(library, "needed_value"))());
  }
#if defined(NEEDS)
  printf("value %d\n", needed_value());
#endif
  const char* inserted = getenv("DYLD_INSERT_LIBRARIES");
  printf("variable %s\n", inserted ? inserted : "gone");
  return 7;
}
#endif
