/* What the parts of the program share: checks, and the tests that main calls. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "verbena/verbena.h"

/* Of any thread. */
extern _Atomic int failures;

void check(int holds, const char* file, int line, const char* what);
void check_status(verbena_code got, verbena_code want, const char* file, int line, const char* call,
                  const verbena_connection* connection);
#define CHECK(condition) check(condition, __FILE__, __LINE__, #condition)
/* Wants a connection `c`, whose last error is told. */
#define EXPECT(want, call) check_status(call, want, __FILE__, __LINE__, #call, c)

/* A key or a value that is a text. */
#define TEXT(text) text, strlen(text)

/* Whether the text of the last error has `part`. */
int text_has(const verbena_connection* c, const char* part);
/* With times that a busy machine keeps; ends the program if there is no server. */
verbena_connection* connect_to(const char* server);

/* Counts what a scan finds of the keys that test_several puts. */
struct scanned {
  verbena_connection* connection;
  int count;
  int in_order;
  int with_values;
  int enough;
};
int on_scanned(void* context, const verbena_item* item);
enum { kManyKeys = 600 };

/* arguments.c */
void test_without_connection(void);
void test_options(const char* server);
void test_wrong_arguments(verbena_connection* c);
/* one_key.c */
void test_get(verbena_connection* c);
void test_conditions(verbena_connection* c);
void test_changes(verbena_connection* c);
void test_times_to_live(verbena_connection* c);
void test_timeouts(verbena_connection* c);
/* buffers.c */
void test_buffers(const char* server);
/* several.c */
void test_several(verbena_connection* c);
void test_several_deletes(verbena_connection* c);
void test_several_refused(verbena_connection* c);
void test_operations(verbena_connection* c);
void test_scan(verbena_connection* c);
void test_what_is_told(verbena_connection* c);
/* submissions.c */
void test_submissions(verbena_connection* c);
void test_more_submissions(verbena_connection* c);
void test_submitted_operations(verbena_connection* c);
void test_submissions_without_key(verbena_connection* c);
void test_event_fd(verbena_connection* c);
void test_fork_in_callback(verbena_connection* c);
void test_fork_in_close(const char* server);
void test_close(verbena_connection* c); /* closes it */
/* clients.c */
void test_client(const char* server);
void test_client_of_a_dead_server(const char* server);
/* servers.c */
void test_full(const char* server);
void test_unordered(const char* server);
void test_gone(const char* server);
void test_frozen(const char* server);
void test_no_threads(const char* server);
void test_absent(const char* server);
