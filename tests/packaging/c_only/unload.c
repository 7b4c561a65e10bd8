/* Loads libverbena.so, connects, and unloads it while what it has started goes on.
 *
 *   unload ADDR:PORT
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbena/verbena.h"

/* Makes a connection and closes it; 0 if all went well. */
static int use(void* library, const char* server) {
  verbena_code (*connect)(const char*, const verbena_options*, verbena_connection**, char*, size_t);
  verbena_code (*ping)(verbena_connection*);
  void (*close)(verbena_connection*);
  verbena_connection* connection = NULL;
  char error[256] = "";
  verbena_code code;
  /* POSIX has it that a function's address fits a pointer to an object. */
  *(void**)&connect = dlsym(library, "verbena_connect");
  *(void**)&ping = dlsym(library, "verbena_ping");
  *(void**)&close = dlsym(library, "verbena_close");
  if (connect == NULL || ping == NULL || close == NULL) {
    fprintf(stderr, "unload: %s\n", dlerror());
    return 1;
  }
  code = connect(server, NULL, &connection, error, sizeof error);
  if (code != VERBENA_OK) {
    fprintf(stderr, "unload: %d: %s\n", (int)code, error);
    return 1;
  }
  code = ping(connection);
  close(connection);
  return code == VERBENA_OK ? 0 : 1;
}

int main(int argc, char** argv) {
  int round;
  if (argc != 2) {
    fprintf(stderr, "Usage: unload ADDR:PORT\n");
    return 2;
  }
  for (round = 0; round < 3; ++round) {
    int state = 0;
    pid_t child;
    void* const library = dlopen("libverbena.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "unload: %s\n", dlerror());
      return 1;
    }
    if (use(library, argv[1]) != 0) return 1;
    if (dlclose(library) != 0) return 1;
    /* Calls what the library has left for forks. */
    child = fork();
    if (child == 0) _exit(0);
    if (child < 0 || waitpid(child, &state, 0) != child || state != 0) {
      fprintf(stderr, "unload: after dlclose a fork's child ended with %d\n", state);
      return 1;
    }
  }
  return 0;
}
