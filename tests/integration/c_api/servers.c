/* Servers without memory, without an index, that die, freeze, or are not there. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/integration/c_api/program.h"

void test_full(const char* server) {
  verbena_connection* c = connect_to(server);
  const size_t size = (size_t)1 << 20;
  char* value = calloc(1, size);
  verbena_code status = VERBENA_OK;
  int i;
  for (i = 0; i < 1000 && status == VERBENA_OK; ++i) {
    char key[32];
    snprintf(key, sizeof key, "fill/%d", i);
    status = verbena_put(c, TEXT(key), value, size, NULL, NULL);
  }
  EXPECT(VERBENA_RESOURCE_EXHAUSTED, status);
  CHECK(strlen(verbena_error_text(c)) > 0);
  EXPECT(VERBENA_OK, verbena_connection_status(c));
  free(value);
  verbena_close(c);
}

void test_unordered(const char* server) {
  verbena_connection* c = connect_to(server);
  struct scanned scanned = {NULL, 0, 1, 0, 0};
  EXPECT(VERBENA_UNIMPLEMENTED, verbena_scan(c, NULL, 0, on_scanned, &scanned));
  verbena_close(c);
}

void test_gone(const char* server) {
  verbena_connection* c = NULL;
  verbena_options options;
  char error[256] = "";
  verbena_get_item get = {0};
  verbena_put_item put = {0};
  verbena_code status;
  char byte;
  verbena_options_init(&options, sizeof options);
  options.operation_timeout_ms = 2000;
  EXPECT(VERBENA_OK, verbena_connect(server, &options, &c, error, sizeof error));
  get.key = put.key = "key";
  get.key_size = put.key_size = 3;
  get.buffer = &byte;
  get.capacity = 1;
  printf("connected\n");
  fflush(stdout);
  do {
    status = verbena_ping(c);
  } while (status == VERBENA_OK);
  CHECK(status == VERBENA_UNAVAILABLE || status == VERBENA_DEADLINE_EXCEEDED);
  EXPECT(VERBENA_OK, verbena_connection_status(c)); /* it would go on with a server */
  EXPECT(status, verbena_get(c, TEXT("key"), &byte, 1, NULL, NULL));
  EXPECT(status, verbena_multi_get(c, &get, 1));
  EXPECT(status, verbena_multi_put(c, &put, 1));
  CHECK(get.status == status && put.status == status);
  CHECK(strlen(verbena_error_text(c)) > 0);
  verbena_close(c);
}

struct late {
  verbena_connection* connection;
  verbena_code status;
  int unknown;
};

static void on_late(void* context, verbena_code status, const verbena_change* change) {
  struct late* late = context;
  late->status = status;
  late->unknown = (int)change->outcome_unknown;
  CHECK(status == VERBENA_OK || verbena_outcome_unknown(late->connection) == late->unknown);
}

/* The call fails as its item does; a get-and-delete, too, leaves open what it did. */
static void late_together(verbena_connection* c) {
  verbena_operation take = {0};
  verbena_put_item put = {0};
  take.kind = VERBENA_OP_GET_AND_DELETE;
  take.key = put.key = "late/other";
  take.key_size = put.key_size = strlen("late/other");
  EXPECT(VERBENA_DEADLINE_EXCEEDED, verbena_execute(c, &take, 1));
  CHECK(take.status == VERBENA_DEADLINE_EXCEEDED && take.result == NULL);
  CHECK((int)take.change.outcome_unknown == verbena_outcome_unknown(c));
  EXPECT(VERBENA_DEADLINE_EXCEEDED, verbena_multi_put(c, &put, 1));
  CHECK(put.status == VERBENA_DEADLINE_EXCEEDED);
  CHECK((int)put.change.outcome_unknown == verbena_outcome_unknown(c));
}

/* However many there are: those that wait for room when the first are late are not begun. */
static void late_many(verbena_connection* c) {
  enum { kItems = 1800, kLongest = 10 }; /* each group of the depth by itself would take 14 s */
  verbena_put_item* const puts = calloc(kItems, sizeof *puts);
  const time_t begun = time(NULL);
  int i;
  for (i = 0; i < kItems; ++i) {
    puts[i].key = "late/many";
    puts[i].key_size = strlen("late/many");
  }
  EXPECT(VERBENA_DEADLINE_EXCEEDED, verbena_multi_put(c, puts, kItems));
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 400));
  EXPECT(VERBENA_DEADLINE_EXCEEDED, verbena_multi_put(c, puts, kItems));
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 0));
  CHECK(time(NULL) - begun < kLongest);
  for (i = 0; i < kItems; ++i) {
    CHECK(puts[i].status == VERBENA_DEADLINE_EXCEEDED);
  }
  CHECK(puts[kItems - 1].change.outcome_unknown == 0);
  free(puts);
}

/* A get-and-delete that is sent and not answered. */
static void late_take(verbena_connection* c) {
  verbena_operation take = {0};
  verbena_code status;
  take.kind = VERBENA_OP_GET_AND_DELETE;
  take.key = "late/none";
  take.key_size = strlen("late/none");
  do {
    status = verbena_execute(c, &take, 1);
    CHECK(status == VERBENA_DEADLINE_EXCEEDED || take.status == VERBENA_NOT_FOUND);
  } while (status == VERBENA_OK);
  EXPECT(VERBENA_DEADLINE_EXCEEDED, status);
  CHECK(take.change.outcome_unknown == 1 && verbena_outcome_unknown(c) == 1);
}

/* A server that does not answer, and then does. `once` is not made again. */
void test_frozen(const char* server) {
  verbena_connection* c = NULL;
  verbena_connection* once = NULL;
  verbena_connection* taker = NULL;
  verbena_options options;
  char error[256] = "";
  verbena_change change;
  verbena_statistics statistics;
  struct late late = {NULL, VERBENA_OK, 0};
  verbena_code status;
  char byte;
  int i;
  verbena_options_init(&options, sizeof options);
  options.operation_timeout_ms = 500;
  EXPECT(VERBENA_OK, verbena_connect(server, &options, &c, error, sizeof error));
  EXPECT(VERBENA_OK, verbena_connect(server, &options, &taker, error, sizeof error));
  options.reconnect = 0;
  EXPECT(VERBENA_OK, verbena_connect(server, &options, &once, error, sizeof error));
  if (failures != 0) return;
  printf("connected\n");
  fflush(stdout);

  do {
    status = verbena_add(c, TEXT("late"), 1, NULL, &change);
    CHECK(status != VERBENA_OK || change.outcome_unknown == 0);
  } while (status == VERBENA_OK);
  EXPECT(VERBENA_DEADLINE_EXCEEDED, status);
  CHECK(change.outcome_unknown == 1 && change.version == 0);
  CHECK(verbena_outcome_unknown(c) == 1 && text_has(c, "outcome is unknown"));
  /* What changes nothing leaves nothing open, nor does a change that was never sent. */
  EXPECT(VERBENA_DEADLINE_EXCEEDED, verbena_get(c, TEXT("late"), &byte, 1, NULL, NULL));
  CHECK(verbena_outcome_unknown(c) == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_add(c, "", 0, 1, NULL, &change));
  CHECK(verbena_outcome_unknown(c) == 0 && change.outcome_unknown == 0);

  late_together(c);
  late_many(c);
  late_take(taker);
  verbena_close(taker);

  /* A time of its own, shorter than the connection's. */
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 40));
  EXPECT(VERBENA_DEADLINE_EXCEEDED, verbena_add(c, TEXT("late"), 1, NULL, &change));
  CHECK(text_has(c, "within 40 ms"));
  EXPECT(VERBENA_DEADLINE_EXCEEDED, verbena_get(c, TEXT("late"), &byte, 1, NULL, NULL));
  CHECK(text_has(c, "within 40 ms"));
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 0));

  late.connection = once;
  do {
    EXPECT(VERBENA_OK, verbena_submit_add(once, TEXT("late"), 1, NULL, on_late, &late));
    if (failures != 0) return;
    EXPECT(VERBENA_OK, verbena_drain(once));
  } while (late.status == VERBENA_OK);
  CHECK(late.status == VERBENA_DEADLINE_EXCEEDED && late.unknown == 1);
  CHECK(verbena_connection_status(once) != VERBENA_OK);

  printf("late\n");
  fflush(stdout);
  for (i = 0; i < 120; ++i) {
    status = verbena_ping(c);
    if (status == VERBENA_OK) break;
  }
  EXPECT(VERBENA_OK, status);
  EXPECT(VERBENA_OK, verbena_add(c, TEXT("late"), 1, NULL, &change));
  EXPECT(VERBENA_OK, verbena_get_statistics(c, &statistics, sizeof statistics));
  CHECK(statistics.reconnects >= 1);
  CHECK(verbena_ping(once) != VERBENA_OK);
  EXPECT(VERBENA_OK, verbena_get_statistics(once, &statistics, sizeof statistics));
  CHECK(statistics.reconnects == 0);
  verbena_close(c);
  verbena_close(once);
}

/* In a process that has not connected yet. Threads are asked for with a stack larger than the
 * address space: there are none to be had. */
void test_no_threads(const char* server) {
  verbena_connection* c = NULL;
  pthread_attr_t before;
  pthread_attr_t attributes;
  char error[512] = "";
  verbena_code code;
  CHECK(pthread_getattr_default_np(&before) == 0 && pthread_getattr_default_np(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, (size_t)1 << 62) == 0);
  CHECK(pthread_setattr_default_np(&attributes) == 0);
  code = verbena_connect(server, NULL, &c, error, sizeof error);
  CHECK(pthread_setattr_default_np(&before) == 0);
  if (code != VERBENA_OK) {
    CHECK(c == NULL && code == VERBENA_RESOURCE_EXHAUSTED && strstr(error, "ulimit -u") != NULL);
    if (failures > 0) fprintf(stderr, "%s: %s\n", verbena_code_string(code), error);
  } else {
    /* The software device has a thread of its own. */
    CHECK(strcmp(verbena_fabric(c), "soft") != 0);
    verbena_close(c);
  }
  c = connect_to(server);
  EXPECT(VERBENA_OK, verbena_ping(c));
  verbena_close(c);
  pthread_attr_destroy(&attributes);
  pthread_attr_destroy(&before);
}

void test_absent(const char* server) {
  verbena_connection* c = NULL;
  char error[256] = "";
  EXPECT(VERBENA_UNAVAILABLE, verbena_connect(server, NULL, &c, error, sizeof error));
  CHECK(c == NULL && strlen(error) > 0);
}
