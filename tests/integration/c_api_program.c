/* The C API from a program in C: each function, and each error that a server gives.
 *
 *   c_api_program all ADDR:PORT          everything against a server with --memory=64MiB
 *   c_api_program fill ADDR:PORT         until the server has no memory
 *   c_api_program unordered ADDR:PORT    against one with --ordered_index=off
 *   c_api_program gone ADDR:PORT         says "connected" and waits for the server to go
 *   c_api_program frozen ADDR:PORT       says "connected", waits for the server to be frozen, says
 *                                        "late" and waits for it to go on
 *   c_api_program absent ADDR:PORT       no server is there
 *
 * Exit status: 0 if all was as it should be, 1 if not: a line on standard error tells what. */

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbena/verbena.h"

static int failures = 0;

static void check(int holds, int line, const char* what) {
  if (holds) return;
  fprintf(stderr, "c_api_program.c:%d: not so: %s\n", line, what);
  ++failures;
}
#define CHECK(condition) check(condition, __LINE__, #condition)

static void check_status(verbena_code got, verbena_code want, int line, const char* call,
                         const verbena_connection* connection) {
  if (got == want) return;
  fprintf(stderr, "c_api_program.c:%d: %s: %s (%s), not %s\n", line, call, verbena_code_string(got),
          verbena_error_text(connection), verbena_code_string(want));
  ++failures;
}
#define EXPECT(want, call) check_status(call, want, __LINE__, #call, c)

/* A key or a value that is a text. */
#define TEXT(text) text, strlen(text)

static int text_has(const verbena_connection* c, const char* part) {
  return strstr(verbena_error_text(c), part) != NULL;
}

static void test_without_connection(void) {
  verbena_connection* const c = NULL;
  char error[100];
  char tiny[4];
  verbena_connection* made = NULL;
  size_t size = 7;
  int64_t ttl = 7;
  char* json = NULL;
  void* value = NULL;
  verbena_limits limits;
  verbena_statistics statistics;
  int status;

  CHECK(strcmp(verbena_code_string(VERBENA_NOT_FOUND), "not found") == 0);
  for (status = VERBENA_OK; status <= VERBENA_DATA_LOSS; ++status) {
    CHECK(strcmp(verbena_code_string((verbena_code)status), "no code of this version") != 0);
  }
  CHECK(strcmp(verbena_code_string((verbena_code)77), "no code of this version") == 0);
  CHECK(verbena_version_number() == VERBENA_VERSION_NUMBER);
  CHECK(VERBENA_VERSION_NUMBER >= VERBENA_MAKE_VERSION(0, 1, 0));
  CHECK(strchr(verbena_version(), '.') != NULL);

  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(NULL, NULL, &made, error, sizeof error));
  CHECK(strstr(error, "NULL") != NULL && made == NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect("127.0.0.1:1", NULL, NULL, error, sizeof error));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect("no port", NULL, &made, tiny, sizeof tiny));
  CHECK(strlen(tiny) == sizeof tiny - 1);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect("no port", NULL, &made, NULL, 0));

  verbena_close(NULL);
  verbena_free(NULL);
  CHECK(strlen(verbena_error_text(NULL)) > 0);
  CHECK(strcmp(verbena_fabric(NULL), "") == 0 && strcmp(verbena_device(NULL), "") == 0);
  CHECK(verbena_server_epoch(NULL) == 0 && verbena_in_flight(NULL) == 0);
  CHECK(verbena_outcome_unknown(NULL) == 0);
  CHECK(verbena_poll(NULL) == -1 && verbena_wait(NULL, 0) == -1);
  CHECK(verbena_poll_and_arm(NULL) == -1 && verbena_event_fd(NULL) == -1);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connection_status(c));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get(c, TEXT("k"), NULL, 0, &size, NULL));
  CHECK(size == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_alloc(c, TEXT("k"), &value, &size, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_and_delete(c, TEXT("k"), &value, &size, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_put(c, TEXT("k"), TEXT("v"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_delete(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_add(c, TEXT("k"), 1, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_append(c, TEXT("k"), TEXT("v"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_expire(c, TEXT("k"), 1, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_persist(c, TEXT("k"), NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_ttl(c, TEXT("k"), &ttl));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_get(c, NULL, 0));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_put(c, NULL, 0));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_scan(c, NULL, 0, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_ping(c));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_info(c, &json));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_limits(c, &limits));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_statistics(c, &statistics, sizeof statistics));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_get(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_put(c, TEXT("k"), TEXT("v"), NULL, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_delete(c, TEXT("k"), NULL, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_add(c, TEXT("k"), 1, NULL, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_append(c, TEXT("k"), TEXT("v"), NULL, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_drain(c));
}

/* A program that was compiled with a later version's struct. */
struct later_options {
  verbena_options options;
  uint64_t later;
};

static void test_options(const char* server) {
  verbena_connection* c = NULL;
  verbena_options options;
  struct later_options later;
  char error[200];

  verbena_options_init(NULL, sizeof options);
  verbena_options_init(&options, sizeof options);
  CHECK(options.size == sizeof options && strcmp(options.fabric, "auto") == 0);
  CHECK(options.connect_timeout_ms == 5000 && options.operation_timeout_ms == 5000);
  CHECK(options.depth == 64 && options.cache_bytes == UINT64_C(64) << 20);
  CHECK(options.poll_time_us == 100 && options.one_sided_reads == 1 && options.tos == -1);
  CHECK(options.ack_timeout == 14 && options.retry_count == 6 && options.rnr_timer == 12);

  options.fabric = "telegraph";
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  CHECK(strstr(error, "telegraph") != NULL && c == NULL);
  options.fabric = NULL;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  verbena_options_init(&options, sizeof options);
  options.size = 8;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  CHECK(strstr(error, "verbena_options_init") != NULL);
  verbena_options_init(&options, sizeof options);
  options.depth = 5000;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  CHECK(strstr(error, "5000") != NULL);

  verbena_options_init(&options, sizeof options);
  CHECK(options.preload == 0 && options.reconnect == 1);

  later.later = 1;
  verbena_options_init(&later.options, sizeof later);
  CHECK(later.options.size == sizeof later && later.later == 0);
  EXPECT(VERBENA_OK, verbena_connect(server, &later.options, &c, error, sizeof error));
  verbena_close(c);
  later.later = 1;
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_connect(server, &later.options, &c, error, sizeof error));
  CHECK(strstr(error, "does not know") != NULL && c == NULL);

  verbena_options_init(&options, sizeof options);
  options.tos = 96;
  options.one_sided_reads = 0;
  options.cache_bytes = 0;
  options.poll_time_us = 0;
  options.preload = 1;
  EXPECT(VERBENA_OK, verbena_connect(server, &options, &c, error, sizeof error));
  EXPECT(VERBENA_OK, verbena_ping(c));
  verbena_close(c);
}

static void test_get(verbena_connection* c) {
  char buffer[8];
  void* value = buffer;
  size_t size = 0;
  uint64_t version = 0;
  verbena_change change;

  EXPECT(VERBENA_OK, verbena_put(c, TEXT("get"), TEXT("12345678"), NULL, &change));
  EXPECT(VERBENA_OK, verbena_get(c, TEXT("get"), buffer, sizeof buffer, &size, &version));
  CHECK(size == 8 && memcmp(buffer, "12345678", 8) == 0 && version == change.version);
  EXPECT(VERBENA_OK, verbena_get(c, TEXT("get"), buffer, sizeof buffer, NULL, NULL));

  memset(buffer, 'x', sizeof buffer);
  EXPECT(VERBENA_BUFFER_TOO_SMALL, verbena_get(c, TEXT("get"), buffer, 7, &size, &version));
  CHECK(size == 8 && buffer[0] == 'x' && version == change.version);
  CHECK(text_has(c, "8 bytes") && text_has(c, "buffer 7"));
  EXPECT(VERBENA_BUFFER_TOO_SMALL, verbena_get(c, TEXT("get"), NULL, 100, &size, NULL));
  CHECK(size == 8);

  EXPECT(VERBENA_NOT_FOUND, verbena_get(c, TEXT("nothing"), buffer, 8, &size, &version));
  CHECK(size == 0 && version == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get(c, "", 0, buffer, 8, &size, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get(c, NULL, 5, buffer, 8, &size, NULL));
  CHECK(text_has(c, "key is NULL"));

  EXPECT(VERBENA_OK, verbena_get_alloc(c, TEXT("get"), &value, &size, &version));
  CHECK(size == 8 && strcmp(value, "12345678") == 0 && version == change.version);
  verbena_free(value);
  EXPECT(VERBENA_NOT_FOUND, verbena_get_alloc(c, TEXT("nothing"), &value, &size, NULL));
  CHECK(value == NULL && size == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_alloc(c, TEXT("get"), NULL, &size, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_alloc(c, TEXT("get"), &value, NULL, NULL));

  EXPECT(VERBENA_OK, verbena_put(c, TEXT("empty"), NULL, 0, NULL, NULL));
  EXPECT(VERBENA_OK, verbena_get(c, TEXT("empty"), NULL, 0, &size, NULL));
  CHECK(size == 0);
  EXPECT(VERBENA_OK, verbena_get_alloc(c, TEXT("empty"), &value, &size, NULL));
  CHECK(value != NULL && size == 0);
  verbena_free(value);
}

static void test_conditions(verbena_connection* c) {
  verbena_put_options put = {0};
  verbena_condition condition = {VERBENA_IF_VERSION, 0, {0}};
  verbena_change first;
  verbena_change change;

  put.condition.kind = VERBENA_IF_PRESENT;
  EXPECT(VERBENA_NOT_FOUND, verbena_put(c, TEXT("cond"), TEXT("a"), &put, &change));
  CHECK(change.version == 0);
  put.condition.kind = VERBENA_IF_ABSENT;
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("cond"), TEXT("a"), &put, &first));
  CHECK(first.version != 0 && first.existed == 0);
  EXPECT(VERBENA_ALREADY_EXISTS, verbena_put(c, TEXT("cond"), TEXT("b"), &put, &change));
  CHECK(change.version == first.version);

  put.condition.kind = VERBENA_IF_VERSION;
  put.condition.version = first.version;
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("cond"), TEXT("b"), &put, &change));
  CHECK(change.version > first.version && change.existed == 1);
  condition.version = change.version;
  EXPECT(VERBENA_ABORTED, verbena_put(c, TEXT("cond"), TEXT("c"), &put, &change));
  CHECK(change.version == condition.version);
  put.condition.kind = (verbena_condition_kind)9;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_put(c, TEXT("cond"), TEXT("c"), &put, NULL));
  memset(&put, 0, sizeof put);
  put.reserved[3] = 1;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_put(c, TEXT("cond"), TEXT("c"), &put, NULL));
  CHECK(text_has(c, "reserved"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_put(c, TEXT("cond"), NULL, 3, NULL, NULL));

  condition.version = first.version;
  EXPECT(VERBENA_ABORTED, verbena_delete(c, TEXT("cond"), &condition, &change));
  condition.version = change.version;
  EXPECT(VERBENA_OK, verbena_delete(c, TEXT("cond"), &condition, NULL));
  EXPECT(VERBENA_NOT_FOUND, verbena_delete(c, TEXT("cond"), NULL, &change));
  condition.kind = VERBENA_IF_ABSENT;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_delete(c, TEXT("cond"), &condition, NULL));
  condition.kind = VERBENA_ALWAYS;
  condition.reserved[1] = 7;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_add(c, TEXT("cond"), 1, &condition, NULL));
  CHECK(text_has(c, "reserved") && text_has(c, "verbena_condition is 7"));
  memset(&put, 0, sizeof put);
  put.condition.reserved[0] = 1;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_put(c, TEXT("cond"), TEXT("c"), &put, NULL));
}

static void test_changes(verbena_connection* c) {
  verbena_change change;
  verbena_condition present = {VERBENA_IF_PRESENT, 0, {0}};
  void* value = NULL;
  size_t size = 0;
  uint64_t version = 0;

  EXPECT(VERBENA_NOT_FOUND, verbena_add(c, TEXT("number"), 1, &present, NULL));
  EXPECT(VERBENA_OK, verbena_add(c, TEXT("number"), 40, NULL, &change));
  CHECK(change.number == 40 && change.existed == 0);
  EXPECT(VERBENA_OK, verbena_add(c, TEXT("number"), -50, &present, &change));
  CHECK(change.number == -10 && change.existed == 1);
  EXPECT(VERBENA_OUT_OF_RANGE, verbena_add(c, TEXT("number"), INT64_MIN, NULL, &change));
  CHECK(change.version != 0);
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("text"), TEXT("abc"), NULL, NULL));
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_add(c, TEXT("text"), 1, NULL, NULL));
  CHECK(strlen(verbena_error_text(c)) > 0);

  EXPECT(VERBENA_OK, verbena_append(c, TEXT("text"), TEXT("def"), NULL, &change));
  CHECK(change.existed == 1);
  EXPECT(VERBENA_NOT_FOUND, verbena_append(c, TEXT("other"), TEXT("x"), &present, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_append(c, TEXT("text"), NULL, 1, NULL, NULL));
  EXPECT(VERBENA_OK, verbena_get_and_delete(c, TEXT("text"), &value, &size, &version));
  CHECK(size == 6 && strcmp(value, "abcdef") == 0 && version == change.version);
  verbena_free(value);
  EXPECT(VERBENA_NOT_FOUND, verbena_get_and_delete(c, TEXT("text"), &value, &size, &version));
  CHECK(value == NULL);
}

static void test_times_to_live(verbena_connection* c) {
  verbena_put_options put = {0};
  verbena_change change;
  int64_t ttl = 0;

  put.ttl_ms = 60000;
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("mortal"), TEXT("v"), &put, NULL));
  EXPECT(VERBENA_OK, verbena_ttl(c, TEXT("mortal"), &ttl));
  CHECK(ttl > 0 && ttl <= 60000);
  EXPECT(VERBENA_OK, verbena_expire(c, TEXT("mortal"), 3600000, &change));
  CHECK(change.existed == 1);
  EXPECT(VERBENA_OK, verbena_ttl(c, TEXT("mortal"), &ttl));
  CHECK(ttl > 60000 && ttl <= 3600000);
  EXPECT(VERBENA_OK, verbena_persist(c, TEXT("mortal"), &change));
  EXPECT(VERBENA_OK, verbena_ttl(c, TEXT("mortal"), &ttl));
  CHECK(ttl == -1);
  put.ttl_ms = -1;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_put(c, TEXT("mortal"), TEXT("v"), &put, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_expire(c, TEXT("mortal"), 0, NULL));
  EXPECT(VERBENA_NOT_FOUND, verbena_expire(c, TEXT("nothing"), 1000, NULL));
  EXPECT(VERBENA_NOT_FOUND, verbena_persist(c, TEXT("nothing"), NULL));
  EXPECT(VERBENA_NOT_FOUND, verbena_ttl(c, TEXT("nothing"), &ttl));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_ttl(c, TEXT("mortal"), NULL));
  EXPECT(VERBENA_OK, verbena_expire(c, TEXT("mortal"), 1, NULL));
  while (verbena_get(c, TEXT("mortal"), &ttl, sizeof ttl, NULL, NULL) == VERBENA_OK) {
  }
}

enum { kManyKeys = 600 };

/* More items than the depth allows at once. */
static void test_several(verbena_connection* c) {
  static char keys[kManyKeys][32];
  static char values[kManyKeys][16];
  static verbena_put_item puts[kManyKeys];
  static verbena_get_item gets[kManyKeys + 2];
  const verbena_put_options wrong = {{(verbena_condition_kind)9, 0, {0}}, 0, {0}};
  int i;

  for (i = 0; i < kManyKeys; ++i) {
    snprintf(keys[i], sizeof keys[i], "many/%03d", i);
    puts[i].key = gets[i].key = keys[i];
    puts[i].key_size = gets[i].key_size = strlen(keys[i]);
    puts[i].value = keys[i];
    puts[i].value_size = strlen(keys[i]);
    gets[i].buffer = values[i];
    gets[i].capacity = sizeof values[i];
  }
  EXPECT(VERBENA_OK, verbena_multi_put(c, puts, kManyKeys));
  for (i = 0; i < kManyKeys; ++i) {
    CHECK(puts[i].status == VERBENA_OK && puts[i].change.version != 0);
  }
  gets[kManyKeys] = gets[0];
  gets[kManyKeys].key = "many/nothing";
  gets[kManyKeys].key_size = strlen("many/nothing");
  gets[kManyKeys + 1] = gets[0];
  gets[kManyKeys + 1].capacity = 1;
  EXPECT(VERBENA_OK, verbena_multi_get(c, gets, kManyKeys + 2));
  for (i = 0; i < kManyKeys; ++i) {
    CHECK(gets[i].status == VERBENA_OK && gets[i].value_size == 8 &&
          memcmp(values[i], keys[i], 8) == 0 && gets[i].version == puts[i].change.version);
  }
  CHECK(gets[kManyKeys].status == VERBENA_NOT_FOUND && gets[kManyKeys].value_size == 0);
  CHECK(gets[kManyKeys + 1].status == VERBENA_BUFFER_TOO_SMALL &&
        gets[kManyKeys + 1].value_size == 8);
  gets[0].key_size = 0;
  puts[0].options = &wrong;
  EXPECT(VERBENA_OK, verbena_multi_get(c, gets, 1));
  EXPECT(VERBENA_OK, verbena_multi_put(c, puts, 1));
  CHECK(gets[0].status == VERBENA_INVALID_ARGUMENT && puts[0].status == VERBENA_INVALID_ARGUMENT);
  for (i = 0; i < 3; ++i) {
    gets[i].status = puts[i].status = VERBENA_OK;
  }
  gets[0] = gets[1];
  puts[0] = puts[1];
  gets[0].reserved1 = puts[0].reserved1 = 1;
  gets[1].reserved[1] = puts[1].reserved[1] = 1;
  EXPECT(VERBENA_OK, verbena_multi_get(c, gets, 3));
  CHECK(text_has(c, "reserved") && text_has(c, "verbena_get_item"));
  EXPECT(VERBENA_OK, verbena_multi_put(c, puts, 3));
  CHECK(text_has(c, "reserved") && text_has(c, "verbena_put_item"));
  for (i = 0; i < 3; ++i) {
    const verbena_code want = i < 2 ? VERBENA_INVALID_ARGUMENT : VERBENA_OK;
    CHECK(gets[i].status == want && puts[i].status == want);
  }
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_get(c, NULL, 1));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_put(c, NULL, 1));
  EXPECT(VERBENA_OK, verbena_multi_get(c, NULL, 0));
}

struct scanned {
  verbena_connection* connection;
  int count;
  int in_order;
  int with_values;
  int enough;
};

static int on_scanned(void* context, const verbena_item* item) {
  struct scanned* scanned = context;
  char want[32];
  snprintf(want, sizeof want, "many/%03d", scanned->count);
  if (item->key_size != 8 || memcmp(item->key, want, 8) != 0) scanned->in_order = 0;
  if (item->value_size == 8 && memcmp(item->value, want, 8) == 0 && item->version != 0) {
    ++scanned->with_values;
  }
  /* The connection can be used here. */
  if (scanned->count == 0 && verbena_ping(scanned->connection) != VERBENA_OK) ++failures;
  return ++scanned->count == scanned->enough;
}

static struct scanned scan(verbena_connection* c, verbena_scan_range* range, uint64_t limit,
                           int enough) {
  struct scanned scanned = {NULL, 0, 1, 0, 0};
  scanned.connection = c;
  scanned.enough = enough;
  EXPECT(VERBENA_OK, verbena_scan(c, range, limit, on_scanned, &scanned));
  return scanned;
}

static void test_scan(verbena_connection* c) {
  verbena_scan_range range = {0};
  struct scanned scanned;

  range.prefix = "many/";
  range.prefix_size = 5;
  scanned = scan(c, &range, 0, 0);
  CHECK(scanned.count == kManyKeys && scanned.in_order && scanned.with_values == kManyKeys);
  scanned = scan(c, &range, 256, 0);
  CHECK(scanned.count == 256 && scanned.in_order);
  scanned = scan(c, &range, 0, 300);
  CHECK(scanned.count == 300 && scanned.in_order);
  range.keys_only = 1;
  scanned = scan(c, &range, 0, 0);
  CHECK(scanned.count == kManyKeys && scanned.with_values == 0);
  range.start = "many/598";
  range.start_size = 8;
  range.after = 1;
  scanned = scan(c, &range, 0, 0);
  CHECK(scanned.count == 1);
  scanned = scan(c, NULL, 3, 0);
  CHECK(scanned.count == 3);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_scan(c, &range, 0, NULL, NULL));
  range.reserved[1] = 1;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_scan(c, &range, 0, on_scanned, &scanned));
  range.reserved[1] = 0;
  range.start = NULL;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_scan(c, &range, 0, on_scanned, &scanned));
}

static void test_what_is_told(verbena_connection* c) {
  verbena_limits limits;
  verbena_statistics statistics;
  uint64_t gets = 0;
  char* json = NULL;
  char* key;
  char byte;

  EXPECT(VERBENA_OK, verbena_ping(c));
  EXPECT(VERBENA_OK, verbena_connection_status(c));
  EXPECT(VERBENA_OK, verbena_info(c, &json));
  CHECK(json != NULL && json[0] == '{' && strstr(json, "version") != NULL);
  verbena_free(json);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_info(c, NULL));
  CHECK(strlen(verbena_fabric(c)) > 0 && strlen(verbena_device(c)) > 0);
  CHECK(verbena_server_epoch(c) != 0);

  EXPECT(VERBENA_OK, verbena_get_limits(c, &limits));
  CHECK(limits.max_key_size >= 1000 && limits.max_value_size > limits.eager_limit &&
        limits.window > 0 && limits.reserved[0] == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_limits(c, NULL));
  key = calloc(1, limits.max_key_size + 1);
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_get(c, key, limits.max_key_size + 1, &byte, 1, NULL, NULL));
  EXPECT(VERBENA_NOT_FOUND, verbena_get(c, key, limits.max_key_size, &byte, 1, NULL, NULL));
  free(key);
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_put(c, TEXT("key"), "", limits.max_value_size + 1, NULL, NULL));

  EXPECT(VERBENA_OK, verbena_get_statistics(c, &statistics, sizeof statistics));
  CHECK(statistics.gets > 0 && statistics.changes > 0 && statistics.reads > 0);
  EXPECT(VERBENA_OK, verbena_get_statistics(c, (verbena_statistics*)&gets, sizeof gets));
  CHECK(gets == statistics.gets && statistics.reconnects == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_statistics(c, NULL, 8));
}

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

static void test_submissions(verbena_connection* c) {
  const verbena_condition present = {VERBENA_IF_PRESENT, 0, {0}};
  const verbena_condition unknown = {(verbena_condition_kind)9, 0, {0}};
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
  while (verbena_in_flight(c) > 0) CHECK(verbena_wait(c, INT64_MAX) >= 1);
  CHECK(ended.gets == 5 && ended.refused == 3 && ended.errors == 2);

  while ((status = verbena_submit_get(c, TEXT("async"), on_get, &ended)) == VERBENA_OK) ++submitted;
  EXPECT(VERBENA_RESOURCE_EXHAUSTED, status);
  CHECK(submitted == 64 && text_has(c, "64"));
  /* Room is made for a call that waits. */
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("async"), TEXT("abcdef"), NULL, NULL));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(ended.gets == 5 + submitted);

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

static void test_event_fd(verbena_connection* c) {
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
static void test_close(verbena_connection* c) {
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

static verbena_connection* connect_to(const char* server) {
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
  test_get(c);
  test_conditions(c);
  test_changes(c);
  test_times_to_live(c);
  test_several(c);
  test_scan(c);
  test_what_is_told(c);
  test_submissions(c);
  test_event_fd(c);
  test_close(c);
}

static void test_full(const char* server) {
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

static void test_unordered(const char* server) {
  verbena_connection* c = connect_to(server);
  struct scanned scanned = {NULL, 0, 1, 0, 0};
  EXPECT(VERBENA_UNIMPLEMENTED, verbena_scan(c, NULL, 0, on_scanned, &scanned));
  verbena_close(c);
}

static void test_gone(const char* server) {
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
  EXPECT(VERBENA_OK, verbena_multi_get(c, &get, 1));
  EXPECT(VERBENA_OK, verbena_multi_put(c, &put, 1));
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

/* A server that does not answer, and then does. `once` is not made again. */
static void test_frozen(const char* server) {
  verbena_connection* c = NULL;
  verbena_connection* once = NULL;
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

static void test_absent(const char* server) {
  verbena_connection* c = NULL;
  char error[256] = "";
  EXPECT(VERBENA_UNAVAILABLE, verbena_connect(server, NULL, &c, error, sizeof error));
  CHECK(c == NULL && strlen(error) > 0);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*test)(const char* server);
  } kTests[] = {{"all", test_all},   {"fill", test_full},     {"unordered", test_unordered},
                {"gone", test_gone}, {"frozen", test_frozen}, {"absent", test_absent}};
  size_t i;
  if (argc == 3) {
    for (i = 0; i < sizeof kTests / sizeof kTests[0]; ++i) {
      if (strcmp(argv[1], kTests[i].name) != 0) continue;
      kTests[i].test(argv[2]);
      return failures == 0 ? 0 : 1;
    }
  }
  fprintf(stderr, "Usage: c_api_program all|fill|unordered|gone|frozen|absent ADDR:PORT\n");
  return 2;
}
