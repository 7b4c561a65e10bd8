/* Operations on one key. */
#include "tests/integration/c_api/program.h"

void test_get(verbena_connection* c) {
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
  /* A text has its end, so that its size need not be asked for. */
  EXPECT(VERBENA_OK, verbena_get_alloc(c, TEXT("get"), &value, NULL, NULL));
  CHECK(value != NULL && strcmp(value, "12345678") == 0);
  verbena_free(value);

  EXPECT(VERBENA_OK, verbena_put(c, TEXT("empty"), NULL, 0, NULL, NULL));
  EXPECT(VERBENA_OK, verbena_get(c, TEXT("empty"), NULL, 0, &size, NULL));
  CHECK(size == 0);
  EXPECT(VERBENA_OK, verbena_get_alloc(c, TEXT("empty"), &value, &size, NULL));
  CHECK(value != NULL && size == 0);
  verbena_free(value);
}

void test_conditions(verbena_connection* c) {
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
  put.condition.kind = 9;
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

void test_changes(verbena_connection* c) {
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

void test_times_to_live(verbena_connection* c) {
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

/* A time that holds for what begins from then on. */
void test_timeouts(verbena_connection* c) {
  verbena_put_options put = {0};
  verbena_change change;
  char byte;
  int64_t ttl = 0;
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 60000));
  put.ttl_ms = 60000;
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("timed"), TEXT("1"), &put, NULL));
  EXPECT(VERBENA_OK, verbena_get(c, TEXT("timed"), &byte, 1, NULL, NULL));
  EXPECT(VERBENA_OK, verbena_ttl(c, TEXT("timed"), &ttl));
  EXPECT(VERBENA_OK, verbena_add(c, TEXT("timed"), 1, NULL, &change));
  CHECK(change.number == 2 && ttl > 0);
  EXPECT(VERBENA_OK, verbena_delete(c, TEXT("timed"), NULL, NULL));
  EXPECT(VERBENA_OK, verbena_set_timeout(c, 0));
}
