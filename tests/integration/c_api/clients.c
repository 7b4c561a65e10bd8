/* A client for many threads. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "tests/integration/c_api/program.h"

enum { kConnections = 2, kThreads = 4, kRounds = 100 };

static void on_get_that_returns(void* context, verbena_code status, const void* value, size_t size,
                                uint64_t version) {
  void** both = context;
  verbena_connection* const c = both[1];
  (void)value;
  (void)size;
  (void)version;
  CHECK(status == VERBENA_OK);
  verbena_client_return(both[0], c);
  CHECK(text_has(c, "within a callback"));
}

struct taken {
  verbena_client* client;
  verbena_connection* connection;
};

static void* borrow_one(void* context) {
  struct taken* const taken = context;
  char error[200] = "";
  verbena_connection* c = NULL;
  EXPECT(VERBENA_OK, verbena_client_borrow(taken->client, &c, error, sizeof error));
  taken->connection = c;
  return NULL;
}

/* One that was returned is lent to one other thread only, however often it was returned. */
static void test_returned_twice(verbena_client* client) {
  struct taken taken[kConnections];
  pthread_t threads[kConnections];
  verbena_connection* c = NULL;
  char error[200] = "";
  int i;
  EXPECT(VERBENA_OK, verbena_client_borrow(client, &c, error, sizeof error));
  for (i = 0; i < 3; ++i) verbena_client_return(client, c);
  for (i = 0; i < kConnections; ++i) {
    taken[i].client = client;
    taken[i].connection = NULL;
    CHECK(pthread_create(&threads[i], NULL, borrow_one, &taken[i]) == 0);
  }
  for (i = 0; i < kConnections; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(taken[0].connection != NULL && taken[1].connection != NULL);
  CHECK(taken[0].connection != taken[1].connection);
  for (i = 0; i < kConnections; ++i) verbena_client_return(client, taken[i].connection);
}

static void* unregister(void* context) {
  verbena_unregister_buffer(context);
  return NULL;
}

/* Memory that a borrower has registered is not the next one's. */
static void test_buffer_of_a_loan(verbena_client* client) {
  static char memory[4096];
  verbena_connection* c = NULL;
  verbena_buffer* buffer = NULL;
  verbena_buffer* again = NULL;
  pthread_t thread;
  char error[200] = "";
  size_t size = 0;
  EXPECT(VERBENA_OK, verbena_client_borrow(client, &c, error, sizeof error));
  EXPECT(VERBENA_OK, verbena_register_buffer(c, memory, sizeof memory, &buffer));
  EXPECT(VERBENA_OK, verbena_get_into(c, TEXT("client/count"), memory, 100, &size, NULL));
  verbena_client_return(client, c);
  EXPECT(VERBENA_OK, verbena_client_borrow(client, &c, error, sizeof error)); /* this thread's */
  EXPECT(VERBENA_INVALID_ARGUMENT,
         verbena_get_into(c, TEXT("client/count"), memory, 100, &size, NULL));
  EXPECT(VERBENA_OK, verbena_register_buffer(c, memory, sizeof memory, &again));
  CHECK(pthread_create(&thread, NULL, unregister, buffer) == 0);
  EXPECT(VERBENA_OK, verbena_get_into(c, TEXT("client/count"), memory, 100, &size, NULL));
  CHECK(pthread_join(thread, NULL) == 0);
  EXPECT(VERBENA_OK, verbena_get_into(c, TEXT("client/count"), memory, 100, &size, NULL));
  verbena_client_return(client, c);
  verbena_unregister_buffer(again);
}

static void* work(void* context) {
  verbena_client* const client = context;
  char error[200] = "";
  int i;
  for (i = 0; i < kRounds; ++i) {
    verbena_connection* c = NULL;
    EXPECT(VERBENA_OK, verbena_client_borrow(client, &c, error, sizeof error));
    if (c == NULL) return NULL;
    CHECK(strcmp(verbena_error_text(c), "") == 0);
    EXPECT(VERBENA_OK, verbena_add(c, TEXT("client/count"), 1, NULL, NULL));
    /* Leaves an error behind, which the next one does not see. */
    EXPECT(VERBENA_INVALID_ARGUMENT, verbena_add(c, "", 0, 1, NULL, NULL));
    verbena_client_return(client, c);
  }
  return NULL;
}

void test_client(const char* server) {
  verbena_client* client = NULL;
  verbena_client* other = NULL;
  verbena_connection* c = NULL;
  verbena_connection* second = NULL;
  verbena_options options;
  pthread_t threads[kThreads];
  void* both[2];
  char error[200] = "";
  char count[16] = "";
  int i;

  verbena_options_init(&options, sizeof options);
  options.connect_timeout_ms = options.operation_timeout_ms = 60000;
  EXPECT(VERBENA_OK,
         verbena_client_connect(server, &options, kConnections, &client, error, sizeof error));
  EXPECT(VERBENA_OK, verbena_client_connect(server, &options, 1, &other, error, sizeof error));
  if (client == NULL || other == NULL) {
    fprintf(stderr, "%s\n", error);
    return;
  }
  for (i = 0; i < kThreads; ++i) CHECK(pthread_create(&threads[i], NULL, work, client) == 0);
  for (i = 0; i < kThreads; ++i) CHECK(pthread_join(threads[i], NULL) == 0);

  EXPECT(VERBENA_OK, verbena_client_borrow(client, &c, error, sizeof error));
  EXPECT(VERBENA_OK, verbena_client_borrow(client, &second, error, sizeof error));
  CHECK(c != NULL && second != NULL && c != second);
  EXPECT(VERBENA_OK, verbena_get(c, TEXT("client/count"), count, sizeof count - 1, NULL, NULL));
  CHECK(strcmp(count, "400") == 0);
  CHECK(strlen(verbena_fabric(c)) > 0);

  /* A lent connection is not closed, nor taken back by another client or within a callback. */
  verbena_close(c);
  CHECK(text_has(c, "verbena_client_return"));
  verbena_client_return(other, c);
  CHECK(text_has(c, "has not lent"));
  both[0] = client;
  both[1] = c;
  EXPECT(VERBENA_OK, verbena_submit_get(c, TEXT("client/count"), on_get_that_returns, both));
  verbena_client_return(client, c); /* waits for it */
  verbena_client_return(client, NULL);
  EXPECT(VERBENA_OK, verbena_client_borrow(client, &c, error, sizeof error));
  EXPECT(VERBENA_OK, verbena_ping(c));
  verbena_client_return(client, c);
  verbena_client_return(client, second);
  test_returned_twice(client);
  test_buffer_of_a_loan(client);
  EXPECT(VERBENA_INVALID_ARGUMENT, verbena_client_borrow(client, NULL, error, sizeof error));
  CHECK(strstr(error, "place for the connection") != NULL);
  verbena_client_close(other);
  verbena_client_close(client);
}

/* A connection that has died is made anew when it is lent again. */
void test_client_of_a_dead_server(const char* server) {
  verbena_client* client = NULL;
  verbena_connection* c = NULL;
  verbena_options options;
  char error[200] = "";
  verbena_code status;
  const time_t start = time(NULL);

  verbena_options_init(&options, sizeof options);
  options.reconnect = 0;
  options.operation_timeout_ms = 2000;
  EXPECT(VERBENA_OK, verbena_client_connect(server, &options, 1, &client, error, sizeof error));
  if (client == NULL) return;
  printf("connected\n");
  fflush(stdout);
  do {
    EXPECT(VERBENA_OK, verbena_client_borrow(client, &c, error, sizeof error));
    if (c == NULL) return;
    status = verbena_ping(c);
    if (status != VERBENA_OK) CHECK(verbena_connection_status(c) != VERBENA_OK);
    verbena_client_return(client, c);
  } while (status == VERBENA_OK);
  c = NULL;
  status = verbena_client_borrow(client, &c, error, sizeof error);
  EXPECT(VERBENA_UNAVAILABLE, status);
  CHECK(c == NULL && strlen(error) > 0);
  printf("gone\n");
  fflush(stdout);
  do {
    status = verbena_client_borrow(client, &c, error, sizeof error);
  } while (status != VERBENA_OK && time(NULL) < start + 100);
  EXPECT(VERBENA_OK, status);
  if (c != NULL) {
    EXPECT(VERBENA_OK, verbena_ping(c));
    verbena_client_return(client, c);
  }
  verbena_client_close(client);
}
