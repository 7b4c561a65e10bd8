/* Values in memory of the program's. */
#include <stdlib.h>

#include "tests/integration/c_api/program.h"

struct got {
  int count;
  verbena_code status;
  const void* value;
  size_t size;
  uint64_t version;
};

static void on_got(void* context, verbena_code status, const void* value, size_t size,
                   uint64_t version) {
  struct got* got = context;
  ++got->count;
  got->status = status;
  got->value = value;
  got->size = size;
  got->version = version;
}

/* With a connection of its own, which goes before its buffer. */
void test_buffers(const char* server) {
  enum { kSize = 100000, kMemory = 256 << 10 };
  verbena_connection* c = connect_to(server);
  verbena_buffer* buffer = NULL;
  verbena_buffer* again = NULL;
  verbena_change change;
  verbena_statistics statistics;
  struct got got = {0, VERBENA_OK, NULL, 0, 0};
  char* memory = malloc(kMemory);
  size_t size = 0;
  uint64_t version = 0;

  memset(memory, 'x', kMemory);
  EXPECT(VERBENA_OK, verbena_register_buffer(c, memory, kMemory, &buffer));
  CHECK(buffer != NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_register_buffer(c, memory + 8, 8, &again));
  CHECK(text_has(c, "registered already") && again == NULL);

  memset(memory, 'v', kSize);
  EXPECT(VERBENA_OK, verbena_put(c, TEXT("buffers"), memory, kSize, NULL, &change));
  EXPECT(VERBENA_OK, verbena_get_into(c, TEXT("buffers"), memory + kSize, kSize, &size, &version));
  CHECK(size == kSize && version == change.version);
  CHECK(memcmp(memory, memory + kSize, kSize) == 0);
  EXPECT(VERBENA_OK, verbena_get_into(c, TEXT("buffers"), memory, kSize, NULL, NULL));
  EXPECT(VERBENA_BUFFER_TOO_SMALL, verbena_get_into(c, TEXT("buffers"), memory, 99, &size, NULL));
  CHECK(size == kSize && text_has(c, "100000 bytes") && text_has(c, "buffer 99"));
  EXPECT(VERBENA_NOT_FOUND, verbena_get_into(c, TEXT("nothing"), memory, 9, &size, &version));
  CHECK(size == 0 && version == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_get_into(c, TEXT("buffers"), memory, kMemory + 1, &size, NULL));

  EXPECT(VERBENA_OK, verbena_submit_get_into(c, TEXT("buffers"), memory, kSize, on_got, &got));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(got.count == 1 && got.status == VERBENA_OK && got.value == memory && got.size == kSize);
  CHECK(got.version == change.version);
  EXPECT(VERBENA_OK, verbena_submit_get_into(c, TEXT("buffers"), memory, 1, on_got, &got));
  EXPECT(VERBENA_OK, verbena_drain(c));
  CHECK(got.count == 2 && got.status == VERBENA_BUFFER_TOO_SMALL && got.value == NULL);
  CHECK(got.size == kSize && got.version == 0);

  EXPECT(VERBENA_OK, verbena_get_statistics(c, &statistics, sizeof statistics));
  CHECK(statistics.puts_without_copy == 1);
  CHECK(statistics.gets_without_copy + statistics.gets_copied == 3);

  verbena_unregister_buffer(buffer);
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_get_into(c, TEXT("buffers"), memory, kSize, &size, NULL));
  EXPECT(VERBENA_OK, verbena_register_buffer(c, memory, kMemory, &buffer));
  EXPECT(VERBENA_OK, verbena_delete(c, TEXT("buffers"), NULL, NULL));
  verbena_close(c);
  verbena_unregister_buffer(buffer);
  free(memory);
}
