/* The first program, in C: puts a value and gets it back.
 *
 *   verbena-example-hello-c 127.0.0.1:7400
 *
 * Exit status: 0 if the value came back as it was, 1 if not, 2 for wrong usage, 3 if the server
 * cannot be reached. */

#include <stdio.h>
#include <string.h>

#include "verbena/verbena.h"

/* Tells what failed, and why. */
static int failed(const verbena_connection* connection, const char* what, verbena_code status) {
  fprintf(stderr, "verbena-example-hello-c: %s: %s: %s\n", what, verbena_code_string(status),
          verbena_error_text(connection));
  return 1;
}

static int say_hello(verbena_connection* connection) {
  const char key[] = "greeting";
  const char text[] = "hello, fabric";
  char value[64];
  size_t size = 0;
  verbena_code status;

  status = verbena_put(connection, key, strlen(key), text, strlen(text), NULL, NULL);
  if (status != VERBENA_OK) return failed(connection, "put", status);

  /* The caller's buffer; VERBENA_BUFFER_TOO_SMALL would tell in `size` how much it takes. */
  status = verbena_get(connection, key, strlen(key), value, sizeof value, &size, NULL);
  if (status != VERBENA_OK) return failed(connection, "get", status);

  printf("%s: %.*s\n", key, (int)size, value);
  return size == strlen(text) && memcmp(value, text, size) == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  verbena_connection* connection = NULL;
  char error[256];
  verbena_code status;
  int result;

  if (argc != 2) {
    fprintf(stderr, "Usage: verbena-example-hello-c ADDR:PORT\n");
    return 2;
  }
  status = verbena_connect(argv[1], NULL, &connection, error, sizeof error);
  if (status != VERBENA_OK) {
    fprintf(stderr, "verbena-example-hello-c: %s: %s\n", verbena_code_string(status), error);
    return 3;
  }
  result = say_hello(connection);
  verbena_close(connection);
  return result;
}
