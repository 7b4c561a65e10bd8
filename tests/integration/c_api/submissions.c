/* Asynchronous operations, and the end of a connection. */
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/c_api/program.h"

struct ended {
  verbena_connection* connection;
  int gets;
  int changes;
  int errors;
  int refused;
  int more;
};

static void on_change(void* context, verbena_code status, const verbena_change* change) {
  struct ended* ended = context;
  ++ended->changes;
  if (status != VERBENA_OK) ++ended->errors;
  if (status == VERBENA_OK && change->version == 0) ++failures;
}

static void on_get(void* context, verbena_code status, const void* value, size_t size,
                   uint64_t version) {
  struct ended* ended = context;
  verbena_connection* const c = ended->connection;
  char byte;
  ++ended->gets;
  if (status != VERBENA_OK) {
    ++ended->errors;
    CHECK(value == NULL && size == 0 && version == 0);
  } else {
    CHECK(size == 6 && memcmp(value, "abcdef", 6) == 0 && version != 0);
  }
  if (ended->more == 0) return;
  --ended->more;
  /* What waits is refused within a callback; what submits is not. */
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_get(c, TEXT("k"), &byte, 1, NULL, NULL));
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_drain(c));
  CHECK(verbena_poll(c) == -1 && verbena_poll_and_arm(c) == -1);
  ++ended->refused;
  EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("async"), on_get, ended));
}

void test_submissions(verbena_connection* c) {
  const verbena_condition present = {VERBENA_IF_PRESENT, 0, {0}};
  const verbena_condition unknown = {9, 0, {0}};
  struct ended ended = {NULL, 0, 0, 0, 0, 0};
  int called = 0;
  verbena_code status;
  int submitted = 0;

  ended.connection = c;
  EXPECT(VERBENA_OK, verbena_submit_put(c, TEXT("async"), TEXT("abc"), NULL, on_change, &ended));
  CHECK(verbena_in_flight(c) == 1);
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(verbena_in_flight(c) == 0 && ended.changes == 1);
  CHECK(verbena_wait(c, 1000000) == 0);
  EXPECT(VERBENA_OK,
         verbena_submit_append(c, TEXT("async"), TEXT("def"), &present, on_change, &ended));
  while (verbena_in_flight(c) > 0) called += verbena_poll(c);
  CHECK(called == 1 && ended.changes == 2);
  EXPECT(VERBENA_OK, verbena_submit_add(c, TEXT("async/n"), 5, NULL, on_change, &ended));
  EXPECT(VERBENA_OK, verbena_submit_delete(c, TEXT("nothing"), NULL, on_change, &ended));
  EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("nothing"), on_get, &ended));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(ended.changes == 4 && ended.gets == 1 && ended.errors == 2);

  ended.more = 3;
  EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("async"), on_get, &ended));
  /* Both are without a limit. */
  while (verbena_in_flight(c) > 0) {
    CHECK(verbena_wait(c, INT64_MAX) >= 1);
    if (verbena_in_flight(c) > 0) CHECK(verbena_wait(c, -1) >= 1);
  }
  CHECK(ended.gets == 5 && ended.refused == 3 && ended.errors == 2);

  while ((status = verbena_submit_get(c, TEXT("async"), on_get, &ended)) == VERBENA_OK) ++submitted;
  EXPECT(VERBENA_RESOURCE_EXHAUSTED, status);
  CHECK(submitted == 64 && text_has(c, "64") && verbena_has_room(c) == 0);
  /* Room is made for a call that waits. */
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("async"), TEXT("abcdef"), NULL, NULL));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(ended.gets == 5 + submitted && verbena_has_room(c) == 1);

  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_get(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_get(c, NULL, 1, on_get, &ended));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_put(c, TEXT("k"), NULL, 1, NULL, on_change, &ended));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_delete(c, TEXT("k"), &unknown, on_change, &ended));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_add(c, TEXT("k"), 1, &unknown, on_change, &ended));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_append(c, TEXT("k"), NULL, 1, NULL, on_change, &ended));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_append(c, TEXT("k"), TEXT("v"), &unknown, on_change, &ended));
}

static void on_ping(void* context, verbena_code status) {
  struct ended* ended = context;
  ++ended->gets;
  if (status != VERBENA_OK) ++ended->errors;
  CHECK(verbena_ping(ended->connection) == VERBENA_FAILED_PRECONDITION);
}

static void on_info(void* context, verbena_code status, const char* json, size_t size) {
  struct ended* ended = context;
  ++ended->gets;
  if (status != VERBENA_OK) {
    ++ended->errors;
    CHECK(json == NULL && size == 0);
  } else {
    CHECK(json != NULL && json[0] == '{' && size == strlen(json));
  }
}

/* What is about no key. */
void test_submissions_without_key(verbena_connection* c) {
  struct ended ended = {NULL, 0, 0, 0, 0, 0};
  ended.connection = c;
  EXPECT(VERBENA_OK, verbena_submit_ping(c, on_ping, &ended));
  EXPECT(VERBENA_OK, verbena_submit_info(c, on_info, &ended));
  CHECK(verbena_in_flight(c) == 2);
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(ended.gets == 2 && ended.errors == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_ping(c, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_info(c, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_ping(NULL, on_ping, &ended));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_info(NULL, on_info, &ended));
  CHECK(ended.gets == 2);
}

void test_event_fd(verbena_connection* c) {
  struct ended ended = {NULL, 0, 0, 0, 0, 0};
  struct pollfd wait = {-1, POLLIN, 0};
  ended.connection = c;
  wait.fd = verbena_event_fd(c);
  CHECK(wait.fd >= 0);
  EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("async"), on_get, &ended));
  while (ended.gets == 0) {
    CHECK(verbena_poll_and_arm(c) >= 0);
    if (ended.gets == 0) CHECK(poll(&wait, 1, 60000) == 1);
    if (failures != 0) return;
  }
  CHECK(ended.errors == 0 && verbena_in_flight(c) == 0);
}

struct executed {
  verbena_connection* connection;
  verbena_code status;
  int called;
};

static void on_executed(void* context, verbena_code status, verbena_operation* operations,
                        size_t count) {
  struct executed* executed = context;
  executed->status = status;
  ++executed->called;
  CHECK(count == 0 || operations[0].status != VERBENA_UNKNOWN);
  CHECK(verbena_ping(executed->connection) == VERBENA_FAILED_PRECONDITION);
}

/* Operations of any kinds with one callback. */
void test_submitted_operations(verbena_connection* c) {
  verbena_operation operations[9];
  struct executed executed = {NULL, VERBENA_OK, 0};
  int i;

  executed.connection = c;
  memset(operations, 0, sizeof operations);
  for (i = 0; i < 9; ++i) {
    operations[i].kind = i + 1; /* one of each, and a kind that is none */
    operations[i].key = "submitted/0";
    operations[i].key_size = 11;
  }
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("submitted/0"), TEXT("value"), NULL, NULL));
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("submitted/t"), TEXT("taken"), NULL, NULL));
  operations[0].result = operations; /* of an earlier call, it may be */
  operations[1].key = "submitted/1";
  operations[1].value = "one";
  operations[1].value_size = 3;
  operations[1].ttl_ms = 3600000;
  operations[2].key = "submitted/2";
  operations[3].key = "submitted/n";
  operations[3].summand = 42;
  operations[4].key = "submitted/l";
  operations[4].value = "tail";
  operations[4].value_size = 4;
  operations[5].key = "submitted/t";
  operations[6].key = "submitted/0";
  operations[6].ttl_ms = 3600000;
  operations[7].key = "submitted/x";
  EXPECT(VERBENA_OK, verbena_submit_execute(c, operations, 9, on_executed, &executed));
  CHECK(executed.called == 0 && operations[0].status == VERBENA_UNKNOWN);
  CHECK(verbena_in_flight(c) == 8);
  EXPECT(VERBENA_OK, verbena_drain(c));
  /* The first that has failed, in their order; that a key to be deleted is absent is no failure. */
  CHECK(executed.called == 1 && executed.status == VERBENA_NOT_FOUND);
  CHECK(operations[0].status == VERBENA_OK && operations[0].result_size == 5 &&
        strcmp(operations[0].result, "value") == 0 && operations[0].change.version != 0);
  CHECK(operations[1].status == VERBENA_OK && operations[1].change.version != 0);
  CHECK(operations[2].status == VERBENA_NOT_FOUND);
  CHECK(operations[3].status == VERBENA_OK && operations[3].change.number == 42);
  CHECK(operations[4].status == VERBENA_OK);
  CHECK(operations[5].status == VERBENA_OK && strcmp(operations[5].result, "taken") == 0);
  CHECK(operations[6].status == VERBENA_OK);
  CHECK(operations[7].status == VERBENA_NOT_FOUND);
  CHECK(operations[8].status == VERBENA_INVALID_ARGUMENT);
  verbena_free(operations[0].result);
  verbena_free(operations[5].result);

  EXPECT(VERBENA_OK, verbena_submit_execute(c, operations + 8, 1, on_executed, &executed));
  EXPECT(VERBENA_OK, verbena_submit_execute(c, NULL, 0, on_executed, &executed));
  CHECK(executed.called == 1);
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(executed.called == 3);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_execute(c, NULL, 1, on_executed, &executed));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_execute(c, operations, 1, NULL, NULL));
  CHECK(verbena_submit_execute(NULL, operations, 1, on_executed, &executed) ==
        VERBENA_INVALID_ARGUMENT);
}

struct closing {
  verbena_connection* connection;
  int cancelled;
  int unknown;
};

/* During verbena_close: the connection is still one that can be asked, and refuses. */
static void on_cancelled(void* context, verbena_code status, const verbena_change* change) {
  struct closing* closing = context;
  verbena_connection* const c = closing->connection;
  verbena_statistics statistics;
  verbena_code refused;
  if (status == VERBENA_CANCELLED) ++closing->cancelled;
  if (change->outcome_unknown != 0) ++closing->unknown;
  refused = verbena_submit_add(c, TEXT("closing"), 1, NULL, on_cancelled, closing);
  CHECK(refused == VERBENA_CANCELLED || refused == VERBENA_FAILED_PRECONDITION);
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_ping(c));
  EXPECT(VERBENA_OK, verbena_get_statistics(c, &statistics, sizeof statistics));
  CHECK(verbena_connection_status(c) != VERBENA_OK && verbena_server_epoch(c) != 0);
  CHECK(verbena_in_flight(c) <= 2 && verbena_event_fd(c) >= 0);
  verbena_close(c);
  CHECK(text_has(c, "callback"));
}

static void on_get_that_closes(void* context, verbena_code status, const void* value, size_t size,
                               uint64_t version) {
  (void)value;
  (void)size;
  (void)version;
  CHECK(status == VERBENA_OK);
  verbena_close(context);
  CHECK(strstr(verbena_error_text(context), "callback") != NULL);
}

static int on_scanned_that_closes(void* context, const verbena_item* item) {
  verbena_connection* const c = context;
  CHECK(item->key_size > 0);
  /* A callback that runs meanwhile makes no difference. */
  EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("async"), on_get_that_closes, c));
  EXPECT(VERBENA_OK, verbena_drain(c));
  EXPECT(VERBENA_NOT_FOUND, verbena_delete(c, TEXT("nothing"), NULL, NULL));
  verbena_close(c);
  CHECK(text_has(c, "callback"));
  return 1;
}

/* Closes the connection. */
void test_close(verbena_connection* c) {
  struct closing closing = {NULL, 0, 0};
  closing.connection = c;
  EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("async"), on_get_that_closes, c));
  EXPECT(VERBENA_OK, verbena_drain(c));
  EXPECT(VERBENA_OK, verbena_scan(c, NULL, 1, on_scanned_that_closes, c));
  EXPECT(VERBENA_OK, verbena_ping(c));

  EXPECT(VERBENA_OK, verbena_submit_add(c, TEXT("closing"), 1, NULL, on_cancelled, &closing));
  EXPECT(VERBENA_OK, verbena_submit_add(c, TEXT("closing"), 1, NULL, on_cancelled, &closing));
  verbena_close(c);
  CHECK(closing.cancelled == 2);
  CHECK(closing.unknown == 0); /* never sent */
}

/* Seconds that a child has for a call that returns at once. */
enum { kChildsTime = 60 };

static void on_get_that_forks(void* context, verbena_code status, const void* value, size_t size,
                              uint64_t version) {
  pid_t* const child = context;
  (void)value;
  (void)size;
  (void)version;
  CHECK(status == VERBENA_OK);
  *child = fork();
  CHECK(*child >= 0);
  if (*child == 0) alarm(kChildsTime);
}

/* The calls in which the process forks. */
static verbena_code call_that_waits(verbena_connection* c, int which) {
  char byte;
  void* value;
  size_t size;
  verbena_get_item gets[2];
  verbena_put_item put;
  memset(gets, 0, sizeof gets);
  memset(&put, 0, sizeof put);
  gets[0].key = gets[1].key = "forks/none";
  gets[0].key_size = gets[1].key_size = 10;
  gets[0].buffer = gets[1].buffer = &byte;
  put.key = put.value = "forks/many";
  put.key_size = put.value_size = 10;
  switch (which) {
    case 0:
      return verbena_get(c, TEXT("forks/none"), &byte, 1, NULL, NULL);
    case 1:
      return verbena_get_alloc(c, TEXT("forks/none"), &value, &size, NULL);
    case 2:
      return verbena_put(c, TEXT("forks/one"), TEXT("v"), NULL, NULL);
    case 3:
      return verbena_multi_put(c, &put, 1);
    case 4: {
      struct ended ended = {NULL, 0, 0, 0, 0, 0};
      int i;
      ended.connection = c;
      for (i = 0; i < 16; ++i) {
        EXPECT(VERBENA_OK,
               verbena_submit_put(c, TEXT("forks/one"), TEXT("v"), NULL, on_change, &ended));
      }
      return verbena_drain(c);
    }
    default: {
      const verbena_code code = verbena_multi_get(c, gets, 2);
      CHECK(gets[0].status != VERBENA_UNKNOWN && gets[1].status != VERBENA_UNKNOWN);
      return code;
    }
  }
}
enum { kCallsThatWait = 6 };

/* A callback forks, and the child returns from it into the call that has run it. What that waits
 * for is the parent's and never ends there, unless its completion came together with the
 * callback's. */
void test_fork_in_callback(verbena_connection* c) {
  int which;
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("forks"), TEXT("v"), NULL, NULL));
  for (which = 0; which < kCallsThatWait; ++which) {
    pid_t child = -1;
    int state = 0;
    const int before = failures;
    const verbena_code outcome = which < 2 ? VERBENA_NOT_FOUND : VERBENA_OK;
    verbena_code code;
    EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("forks"), on_get_that_forks, &child));
    code = call_that_waits(c, which);
    if (child == 0) {
      const int said = code == VERBENA_FAILED_PRECONDITION && text_has(c, "forked");
      CHECK(said || code == outcome);
      verbena_close(c);
      _exit(failures == before ? 0 : 1);
    }
    EXPECT(outcome, code);
    EXPECT(VERBENA_OK, verbena_drain(c));
    CHECK(child > 0 && waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  }
}

static void on_change_that_forks(void* context, verbena_code status, const verbena_change* change) {
  pid_t* const child = context;
  (void)change;
  CHECK(status == VERBENA_CANCELLED);
  if (*child != -1) return;
  *child = fork();
  CHECK(*child >= 0);
  if (*child == 0) alarm(kChildsTime);
}

/* A callback that verbena_close runs forks, and the child goes on to destroy the connection: of
 * that, everything is the parent's. */
void test_fork_in_close(const char* server) {
  int round;
  for (round = 0; round < 10; ++round) {
    verbena_connection* const c = connect_to(server);
    pid_t child = -1;
    int state = 0;
    int i;
    for (i = 0; i < 4; ++i) {
      EXPECT(VERBENA_OK,
             verbena_submit_put(c, TEXT("forks"), TEXT("v"), NULL, on_change_that_forks, &child));
    }
    verbena_close(c);
    if (child == 0) _exit(0);
    CHECK(child > 0 && waitpid(child, &state, 0) == child);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  }
}

struct more {
  verbena_connection* connection;
  int ttls;
  int64_t ttl;
  int scans;
  size_t found;
  verbena_code status;
};

static void on_ttl(void* context, verbena_code status, int64_t ttl_ms) {
  struct more* more = context;
  ++more->ttls;
  more->status = status;
  more->ttl = ttl_ms;
}

static void on_scan_ended(void* context, verbena_code status, const verbena_item* items,
                          size_t count) {
  struct more* more = context;
  verbena_connection* const c = more->connection;
  size_t i;
  ++more->scans;
  more->status = status;
  more->found = count;
  for (i = 0; i < count; ++i) {
    CHECK(items[i].key_size == 6 && memcmp(items[i].key, "more/", 5) == 0);
    CHECK(items[i].value_size == 1 && items[i].version != 0);
  }
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_ping(c));
}

/* Times to live, scans and get-and-delete. */
void test_more_submissions(verbena_connection* c) {
  struct ended ended = {NULL, 0, 0, 0, 0, 0};
  struct more more = {NULL, 0, 7, 0, 7, VERBENA_UNKNOWN};
  verbena_scan_range range = {0};
  ended.connection = more.connection = c;
  range.prefix = "more/";
  range.prefix_size = 5;
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 60000));
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("more/1"), TEXT("a"), NULL, NULL));
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("more/2"), TEXT("b"), NULL, NULL));
  EXPECT(VERBENA_OK, verbena_submit_expire(c, TEXT("more/1"), 3600000, on_change, &ended));
  EXPECT(VERBENA_OK, verbena_drain(c));
  EXPECT(VERBENA_OK, verbena_submit_ttl(c, TEXT("more/1"), on_ttl, &more));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(more.ttls == 1 && more.status == VERBENA_OK && more.ttl > 0 && more.ttl <= 3600000);
  EXPECT(VERBENA_OK, verbena_submit_persist(c, TEXT("more/1"), on_change, &ended));
  EXPECT(VERBENA_OK, verbena_drain(c));
  EXPECT(VERBENA_OK, verbena_submit_ttl(c, TEXT("more/1"), on_ttl, &more));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(more.ttls == 2 && more.status == VERBENA_OK && more.ttl == -1);
  CHECK(ended.changes == 2 && ended.errors == 0);
  EXPECT(VERBENA_OK, verbena_submit_ttl(c, TEXT("more/none"), on_ttl, &more));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(more.ttls == 3 && more.status == VERBENA_NOT_FOUND && more.ttl == -1);

  EXPECT(VERBENA_OK, verbena_submit_scan(c, &range, 10, on_scan_ended, &more));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(more.scans == 1 && more.status == VERBENA_OK && more.found == 2);
  EXPECT(VERBENA_OK, verbena_submit_scan(c, &range, 1, on_scan_ended, &more));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(more.scans == 2 && more.found == 1);
  EXPECT(VERBENA_OK, verbena_submit_scan(c, &range, 0, on_scan_ended, &more));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(more.scans == 3 && more.found == 2);

  EXPECT(VERBENA_OK, verbena_put(c, TEXT("more/1"), TEXT("abcdef"), NULL, NULL));
  EXPECT(VERBENA_OK, verbena_submit_get_and_delete(c, TEXT("more/1"), on_get, &ended));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(ended.gets == 1 && ended.errors == 0);
  EXPECT(VERBENA_OK, verbena_submit_get_and_delete(c, TEXT("more/1"), on_get, &ended));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(ended.gets == 2 && ended.errors == 1);
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 0));
}
