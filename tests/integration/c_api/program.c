/* The C API from a program in C: each function, and each error that a server gives.
 *
 *   c_api_program all ADDR:PORT          everything against a server with --memory=64MiB
 *   c_api_program fill ADDR:PORT         until the server has no memory
 *   c_api_program unordered ADDR:PORT    against one with --ordered_index=off
 *   c_api_program gone ADDR:PORT         says "connected" and waits for the server to go
 *   c_api_program frozen ADDR:PORT       says "connected", waits for the server to be frozen, says
 *                                        "late" and waits for it to go on
 *   c_api_program dead ADDR:PORT         says "connected", waits for the server to go, says "gone"
 *                                        and waits for another one
 *   c_api_program threads ADDR:PORT      while no thread can be made
 *   c_api_program absent ADDR:PORT       no server is there
 *
 * Exit status: 0 if all was as it should be, 1 if not: a line on standard error tells what. */

#include "tests/integration/c_api/program.h"

#include <stdio.h>
#include <stdlib.h>

_Atomic int failures = 0;

void check(int holds, const char* file, int line, const char* what) {
  if (holds) return;
  fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  ++failures;
}

void check_status(verbena_code got, verbena_code want, const char* file, int line, const char* call,
                  const verbena_connection* connection) {
  if (got == want) return;
  fprintf(stderr, "%s:%d: %s: %s (%s), not %s\n", file, line, call, verbena_code_string(got),
          verbena_error_text(connection), verbena_code_string(want));
  ++failures;
}

int text_has(const verbena_connection* c, const char* part) {
  return strstr(verbena_error_text(c), part) != NULL;
}

verbena_connection* connect_to(const char* server) {
  verbena_connection* connection = NULL;
  verbena_options options;
  char error[256];
  verbena_options_init(&options, sizeof options);
  options.operation_timeout_ms = 60000;
  options.connect_timeout_ms = 60000;
  if (verbena_connect(server, &options, &connection, error, sizeof error) != VERBENA_OK) {
    fprintf(stderr, "c_api_program: %s\n", error);
    exit(1);
  }
  return connection;
}

static void test_all(const char* server) {
  verbena_connection* c;
  test_without_connection();
  test_options(server);
  c = connect_to(server);
  CHECK(strcmp(verbena_error_text(c), "") == 0);
  test_wrong_arguments(c);
  test_get(c);
  test_conditions(c);
  test_changes(c);
  test_times_to_live(c);
  test_timeouts(c);
  test_several(c);
  test_scan(c);
  test_several_deletes(c);
  test_several_refused(c);
  test_operations(c);
  test_what_is_told(c);
  test_submissions(c);
  test_more_submissions(c);
  test_submitted_operations(c);
  test_submissions_without_key(c);
  test_event_fd(c);
  test_fork_in_callback(c);
  test_close(c);
  test_fork_in_close(server);
  test_buffers(server);
  test_client(server);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*test)(const char* server);
  } kTests[] = {{"all", test_all},
                {"fill", test_full},
                {"unordered", test_unordered},
                {"gone", test_gone},
                {"frozen", test_frozen},
                {"threads", test_no_threads},
                {"absent", test_absent},
                {"dead", test_client_of_a_dead_server}};
  size_t i;
  if (argc == 3) {
    for (i = 0; i < sizeof kTests / sizeof kTests[0]; ++i) {
      if (strcmp(argv[1], kTests[i].name) != 0) continue;
      kTests[i].test(argv[2]);
      return failures == 0 ? 0 : 1;
    }
  }
  fprintf(stderr,
          "Usage: c_api_program all|fill|unordered|gone|frozen|threads|absent|dead "
          "ADDR:PORT\n");
  return 2;
}
