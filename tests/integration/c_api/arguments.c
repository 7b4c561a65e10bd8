/* What a caller can do wrong, with and without a connection. */
#include "tests/integration/c_api/program.h"

static void test_later_functions_without_connection(void) {
  verbena_connection* const c = NULL;
  verbena_connection* borrowed = NULL;
  verbena_client* client = NULL;
  verbena_buffer* buffer = NULL;
  char error[100] = "";
  size_t size = 7;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_set_timeout(c, 1));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_register_buffer(c, error, sizeof error, &buffer));
  verbena_unregister_buffer(NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_into(c, TEXT("k"), error, 1, &size, NULL));
  CHECK(size == 0);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_delete(c, NULL, 0));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_execute(c, NULL, 0));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_expire(c, TEXT("k"), 1, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_persist(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_get_and_delete(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_get_into(c, TEXT("k"), error, 1, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_ttl(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_scan(c, NULL, 1, NULL, NULL));

  verbena_client_close(NULL);
  verbena_client_return(NULL, NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_client_connect(NULL, NULL, 1, &client, error, sizeof error));
  CHECK(strstr(error, "NULL") != NULL && client == NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_client_connect("127.0.0.1:1", NULL, 1, NULL, error, sizeof error));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_client_connect("127.0.0.1:1", NULL, 0, &client, error, sizeof error));
  CHECK(strstr(error, "connections is 0") != NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_client_connect("127.0.0.1:1", NULL, 1025, &client, NULL, 0));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_client_connect("no port", NULL, 1, &client, error, sizeof error));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_client_borrow(NULL, &borrowed, error, sizeof error));
  CHECK(strstr(error, "client is NULL") != NULL && borrowed == NULL);
}

void test_without_connection(void) {
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
    CHECK(strcmp(verbena_code_string(status), "no code of this version") != 0);
  }
  const int none[] = {-1, 77, 1 << 20};
  for (int i = 0; i < 3; ++i) {
    CHECK(strcmp(verbena_code_string(none[i]), "no code of this version") == 0);
  }
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
  CHECK(verbena_has_room(NULL) == 0);
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
  test_later_functions_without_connection();
}

/* A program that was compiled with a later version's struct. */
struct later_options {
  verbena_options options;
  uint64_t later;
};

void test_options(const char* server) {
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
  options.tos = -2;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  CHECK(strstr(error, "tos is -2") != NULL);
  verbena_options_init(&options, sizeof options);
  options.reconnect = 2;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  CHECK(strstr(error, "reconnect is 2") != NULL);
  verbena_options_init(&options, sizeof options);
  options.operation_timeout_ms = INT64_MIN;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  options.operation_timeout_ms = INT64_MAX;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_connect(server, &options, &c, error, sizeof error));
  CHECK(strstr(error, "operation_timeout") != NULL);

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

static void on_change_that_is_none(void* context, verbena_code status,
                                   const verbena_change* change) {
  (void)context;
  (void)status;
  (void)change;
  CHECK(!"called for what was refused");
}
static void on_get_that_is_none(void* context, verbena_code status, const void* value, size_t size,
                                uint64_t version) {
  (void)context;
  (void)status;
  (void)value;
  (void)size;
  (void)version;
  CHECK(!"called for what was refused");
}
static void on_ttl_that_is_none(void* context, verbena_code status, int64_t ttl_ms) {
  (void)context;
  (void)status;
  (void)ttl_ms;
  CHECK(!"called for what was refused");
}
static void on_scan_that_is_none(void* context, verbena_code status, const verbena_item* items,
                                 size_t count) {
  (void)context;
  (void)status;
  (void)items;
  (void)count;
  CHECK(!"called for what was refused");
}

/* Each says what, and nothing of it is done or called. */
void test_wrong_arguments(verbena_connection* c) {
  verbena_scan_range range = {0};
  verbena_buffer* buffer = NULL;
  char memory[64];
  size_t size = 7;

  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_set_timeout(c, -1));
  CHECK(text_has(c, "timeout is -1 ms"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_set_timeout(c, INT64_MAX));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_register_buffer(c, memory, sizeof memory, NULL));
  CHECK(text_has(c, "NULL"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_register_buffer(c, NULL, 8, &buffer));
  CHECK(text_has(c, "memory is NULL") && buffer == NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_register_buffer(c, memory, 0, &buffer));
  CHECK(text_has(c, "0 bytes"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_register_buffer(c, memory, SIZE_MAX, &buffer));
  CHECK(text_has(c, "address") && buffer == NULL);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_into(c, TEXT("k"), NULL, 5, &size, NULL));
  CHECK(size == 0 && text_has(c, "target is NULL"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_into(c, NULL, 5, memory, 5, &size, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_get_into(c, TEXT("k"), memory, 5, &size, NULL));
  CHECK(text_has(c, "registered"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_multi_delete(c, NULL, 3));
  CHECK(text_has(c, "count is 3"));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_execute(c, NULL, 3));
  EXPECT(VERBENA_OK, verbena_execute(c, NULL, 0));

  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_expire(c, TEXT("k"), 1, NULL, NULL));
  CHECK(text_has(c, "callback is NULL"));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_expire(c, TEXT("k"), INT64_MIN, on_change_that_is_none, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_persist(c, NULL, 1, on_change_that_is_none, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_get_and_delete(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_get_and_delete(c, "", 0, on_get_that_is_none, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_get_into(c, TEXT("k"), memory, 5, NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_get_into(c, TEXT("k"), memory, 5, on_get_that_is_none, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_submit_get_into(c, TEXT("k"), NULL, 5, on_get_that_is_none, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_ttl(c, TEXT("k"), NULL, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_ttl(c, NULL, 1, on_ttl_that_is_none, NULL));
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_scan(c, NULL, 1, NULL, NULL));
  range.after = 2;
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_submit_scan(c, &range, 1, on_scan_that_is_none, NULL));
  CHECK(text_has(c, "after is 2"));
  CHECK(verbena_in_flight(c) == 0);
}
