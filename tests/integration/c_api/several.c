/* Several keys at once, scans, and what is told of server and connection. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/c_api/program.h"

/* More items than the depth allows at once. */
void test_several(verbena_connection* c) {
  static char keys[kManyKeys][32];
  static char values[kManyKeys][16];
  static verbena_put_item puts[kManyKeys];
  static verbena_get_item gets[kManyKeys + 2];
  const verbena_put_options wrong = {{9, 0, {0}}, 0, {0}};
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
  /* Of an absent key the call says nothing, of a value that does not fit it does. */
  EXPECT(VERBENA_OK, verbena_multi_get(c, gets, kManyKeys + 1));
  EXPECT(VERBENA_BUFFER_TOO_SMALL, verbena_multi_get(c, gets, kManyKeys + 2));
  CHECK(text_has(c, "8 bytes") && text_has(c, "buffer 1"));
  for (i = 0; i < kManyKeys; ++i) {
    CHECK(gets[i].status == VERBENA_OK && gets[i].value_size == 8 &&
          memcmp(values[i], keys[i], 8) == 0 && gets[i].version == puts[i].change.version);
  }
  CHECK(gets[kManyKeys].status == VERBENA_NOT_FOUND && gets[kManyKeys].value_size == 0);
  CHECK(gets[kManyKeys + 1].status == VERBENA_BUFFER_TOO_SMALL &&
        gets[kManyKeys + 1].value_size == 8);
  gets[0].key_size = 0;
  puts[0].options = &wrong;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_get(c, gets, 1));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_put(c, puts, 1));
  CHECK(gets[0].status == VERBENA_INVALID_ARGUMENT && puts[0].status == VERBENA_INVALID_ARGUMENT);
  for (i = 0; i < 3; ++i) {
    gets[i].status = puts[i].status = VERBENA_OK;
  }
  gets[0] = gets[1];
  puts[0] = puts[1];
  gets[0].reserved1 = puts[0].reserved1 = 1;
  gets[1].reserved[1] = puts[1].reserved[1] = 1;
  gets[2].capacity = 0; /* a later error, which the call does not tell */
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_get(c, gets, 3));
  CHECK(text_has(c, "reserved") && text_has(c, "verbena_get_item"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_put(c, puts, 3));
  CHECK(text_has(c, "reserved") && text_has(c, "verbena_put_item"));
  for (i = 0; i < 3; ++i) {
    CHECK(gets[i].status == (i < 2 ? VERBENA_INVALID_ARGUMENT : VERBENA_BUFFER_TOO_SMALL));
    CHECK(puts[i].status == (i < 2 ? VERBENA_INVALID_ARGUMENT : VERBENA_OK));
  }
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_get(c, NULL, 1));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_put(c, NULL, 1));
  EXPECT(VERBENA_OK, verbena_multi_get(c, NULL, 0));
}

int on_scanned(void* context, const verbena_item* item) {
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

void test_scan(verbena_connection* c) {
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

void test_what_is_told(verbena_connection* c) {
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

void test_several_deletes(verbena_connection* c) {
  static char keys[kManyKeys][32];
  static verbena_delete_item items[kManyKeys + 4];
  verbena_condition condition = {VERBENA_IF_VERSION, 1, {0}};
  const verbena_condition wrong = {VERBENA_IF_ABSENT, 0, {0}};
  int i;
  for (i = 0; i < kManyKeys; ++i) {
    snprintf(keys[i], sizeof keys[i], "many/%03d", i);
    items[i].key = keys[i];
    items[i].key_size = strlen(keys[i]);
  }
  for (i = kManyKeys; i < kManyKeys + 4; ++i) items[i] = items[0];
  items[kManyKeys].key = "many/nothing";
  items[kManyKeys].key_size = strlen("many/nothing");
  items[kManyKeys + 1].key = NULL;
  items[kManyKeys + 2].condition = &wrong;
  items[kManyKeys + 3].reserved[0] = 1;
  items[1].condition = &condition;
  EXPECT(VERBENA_ABORTED, verbena_multi_delete(c, items, kManyKeys + 4));
  CHECK(text_has(c, "version")); /* that of items[1], not of the later ones */
  for (i = 0; i < kManyKeys; ++i) {
    CHECK(items[i].status == (i == 1 ? VERBENA_ABORTED : VERBENA_OK));
    CHECK(items[i].change.version != 0);
  }
  CHECK(items[kManyKeys].status == VERBENA_NOT_FOUND);
  for (i = kManyKeys + 1; i < kManyKeys + 4; ++i) {
    CHECK(items[i].status == VERBENA_INVALID_ARGUMENT);
  }
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_delete(c, &items[kManyKeys + 3], 1));
  CHECK(text_has(c, "reserved") && text_has(c, "verbena_delete_item"));
  condition.version = items[1].change.version;
  EXPECT(VERBENA_OK, verbena_multi_delete(c, &items[1], 1));
  CHECK(items[1].status == VERBENA_OK);
}

struct refused {
  verbena_connection* connection;
  verbena_get_item get;
  verbena_put_item put;
  verbena_delete_item deletion;
  verbena_operation operation;
};

static void begin_with_results(struct refused* refused) {
  char* const not_null = (char*)refused;
  memset(refused, 0, sizeof *refused);
  refused->get.value_size = refused->get.version = 7;
  refused->put.change.version = refused->deletion.change.version = 7;
  refused->operation.result = not_null;
  refused->operation.result_size = 7;
}

/* What a call before has left is not there any more. */
static void check_refused(const struct refused* refused, verbena_code want) {
  CHECK(refused->get.status == want && refused->put.status == want);
  CHECK(refused->deletion.status == want && refused->operation.status == want);
  CHECK(refused->get.value_size == 0 && refused->get.version == 0);
  CHECK(refused->put.change.version == 0 && refused->deletion.change.version == 0);
  CHECK(refused->operation.result == NULL && refused->operation.result_size == 0);
}

static void on_get_that_wants_more(void* context, verbena_code status, const void* value,
                                   size_t value_size, uint64_t version) {
  struct refused* const refused = context;
  verbena_connection* const c = refused->connection;
  (void)status;
  (void)value;
  (void)value_size;
  (void)version;
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_multi_get(c, &refused->get, 1));
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_multi_put(c, &refused->put, 1));
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_multi_delete(c, &refused->deletion, 1));
  EXPECT(VERBENA_FAILED_PRECONDITION, verbena_execute(c, &refused->operation, 1));
}

/* Calls that are refused as a whole. */
void test_several_refused(verbena_connection* with) {
  verbena_connection* const c = NULL;
  struct refused refused;
  begin_with_results(&refused);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_get(c, &refused.get, 1));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_put(c, &refused.put, 1));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_delete(c, &refused.deletion, 1));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_execute(c, &refused.operation, 1));
  check_refused(&refused, VERBENA_INVALID_ARGUMENT);

  begin_with_results(&refused);
  refused.connection = with;
  CHECK(verbena_submit_get(with, TEXT("op/a"), on_get_that_wants_more, &refused) == VERBENA_OK);
  CHECK(verbena_drain(with) == VERBENA_OK);
  check_refused(&refused, VERBENA_FAILED_PRECONDITION);
}

static verbena_operation operation(int kind, const char* key) {
  verbena_operation made = {0};
  made.kind = kind;
  made.key = key;
  made.key_size = strlen(key);
  return made;
}

/* Of each kind one that does something, which the next call sees, and one that is refused. */
void test_operations(verbena_connection* c) {
  verbena_operation first[] = {
      operation(VERBENA_OP_PUT, "op/a"),     operation(VERBENA_OP_ADD, "op/n"),
      operation(VERBENA_OP_APPEND, "op/t"),  operation(VERBENA_OP_PUT, "op/m"),
      operation(VERBENA_OP_GET, "op/none"),  operation(0, "op/a"),
      operation(VERBENA_OP_PUT, "op/null"),  operation(VERBENA_OP_GET, "op/reserved"),
      operation(VERBENA_OP_EXPIRE, "op/a0"), operation(VERBENA_OP_GET, "op/timeout")};
  verbena_operation second[] = {
      operation(VERBENA_OP_GET, "op/a"),    operation(VERBENA_OP_GET_AND_DELETE, "op/t"),
      operation(VERBENA_OP_DELETE, "op/n"), operation(VERBENA_OP_PERSIST, "op/m"),
      operation(VERBENA_OP_PUT, "op/a"),    operation(VERBENA_OP_EXPIRE, "op/none")};
  enum { kFirst = sizeof first / sizeof first[0], kSecond = sizeof second / sizeof second[0] };
  int64_t ttl = 0;
  int i;
  first[0].value = "value";
  first[0].value_size = 5;
  first[1].summand = -7;
  first[1].timeout_ms = 60000;
  first[2].value = "text";
  first[2].value_size = 4;
  first[3].ttl_ms = 60000;
  first[6].value_size = 5; /* and its value is NULL */
  first[7].reserved[3] = 1;
  first[9].timeout_ms = -5;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_execute(c, first, kFirst));
  CHECK(text_has(c, "kind is 0"));
  for (i = 0; i < 4; ++i) {
    CHECK(first[i].status == VERBENA_OK && first[i].change.version != 0 && first[i].result == NULL);
  }
  CHECK(first[1].change.number == -7);
  CHECK(first[4].status == VERBENA_NOT_FOUND && first[4].result == NULL);
  for (i = 5; i < kFirst; ++i) CHECK(first[i].status == VERBENA_INVALID_ARGUMENT);
  EXPECT(VERBENA_OK, verbena_ttl(c, TEXT("op/m"), &ttl));
  CHECK(ttl > 0);

  second[4].condition.kind = VERBENA_IF_ABSENT;
  second[5].ttl_ms = 1000;
  EXPECT(VERBENA_ALREADY_EXISTS, verbena_execute(c, second, kSecond));
  CHECK(second[0].status == VERBENA_OK && second[0].result_size == 5);
  CHECK(second[0].result != NULL && strcmp(second[0].result, "value") == 0);
  CHECK(second[0].change.version == first[0].change.version);
  CHECK(second[1].status == VERBENA_OK && second[1].result_size == 4);
  CHECK(second[1].result != NULL && strcmp(second[1].result, "text") == 0);
  CHECK(second[2].status == VERBENA_OK);
  CHECK(second[3].status == VERBENA_OK && second[3].change.existed == 1);
  CHECK(second[4].status == VERBENA_ALREADY_EXISTS);
  CHECK(second[4].change.version == first[0].change.version);
  CHECK(second[5].status == VERBENA_NOT_FOUND);
  verbena_free(second[0].result);
  verbena_free(second[1].result);
  EXPECT(VERBENA_OK, verbena_execute(c, second, 2));
  CHECK(second[0].status == VERBENA_OK && second[1].status == VERBENA_NOT_FOUND);
  CHECK(second[1].result == NULL && second[1].result_size == 0);
  verbena_free(second[0].result);
  EXPECT(VERBENA_OK, verbena_ttl(c, TEXT("op/m"), &ttl));
  CHECK(ttl == -1);
}
