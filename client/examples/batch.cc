// Many keys in one call: MultiPut, MultiGet, and a Batch of operations of different kinds.
//
//   verbena-example-batch 127.0.0.1:7400
//
// A shop puts its prices, gets them all with one wait instead of one for each, and settles an order
// with one batch.
//
// Exit status: 0 if everything came back as it should, 1 if not, 2 for wrong usage, 3 if the server
// cannot be reached.

#include "verbena/batch.h"

#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/connection.h"

namespace {

constexpr int kProducts = 1000;

// Puts the prices: as many as the depth allows are under way at once, and share messages.
absl::Status PutPrices(verbena::Connection& connection, const std::vector<std::string>& keys,
                       const std::vector<std::string>& prices) {
  std::vector<verbena::KeyValue> items;  // views, borrowed until MultiPut returns
  for (size_t i = 0; i < keys.size(); ++i) items.push_back({keys[i], prices[i]});
  return connection.MultiPut(items);
}

// Gets all of them, and one that is not there: each key has an outcome of its own, and an absent
// key is none that fails the call.
absl::Status CheckPrices(verbena::Connection& connection, const std::vector<std::string>& keys,
                         const std::vector<std::string>& prices) {
  std::vector<std::string_view> wanted(keys.begin(), keys.end());
  wanted.push_back("example/price/of-nothing");
  std::vector<verbena::GetItem> found;
  if (absl::Status status = connection.MultiGet(wanted, &found); !status.ok()) return status;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!found[i].status.ok()) return found[i].status;
    if (found[i].value != prices[i]) return absl::DataLossError(keys[i] + " came back changed");
  }
  if (!absl::IsNotFound(found.back().status)) return absl::DataLossError("a price of nothing");
  return absl::OkStatus();
}

// Operations of different kinds, carried out together. They have no order among themselves, so each
// is about a key of its own.
absl::Status Settle(verbena::Connection& connection) {
  verbena::Batch batch;
  const size_t price = batch.Get("example/price/7");
  const size_t stock = batch.Add("example/stock/7", -2);
  const size_t order = batch.Put("example/order/1", "2 x product 7");
  const size_t basket = batch.Delete("example/basket/1");
  if (absl::Status status = connection.Execute(batch); !status.ok()) return status;
  std::cout << "price " << batch.result(price).value << ", stock "
            << batch.result(stock).change.number << ", order version "
            << batch.result(order).change.version << ", basket "
            << (batch.result(basket).status.ok() ? "emptied" : "was empty") << "\n";
  return absl::OkStatus();
}

absl::Status Trade(verbena::Connection& connection) {
  std::vector<std::string> keys;
  std::vector<std::string> prices;
  for (int i = 0; i < kProducts; ++i) {
    keys.push_back("example/price/" + std::to_string(i));
    prices.push_back(std::to_string(100 + i) + ".00");
  }
  if (absl::Status status = PutPrices(connection, keys, prices); !status.ok()) return status;
  if (absl::Status status = CheckPrices(connection, keys, prices); !status.ok()) return status;
  std::cout << kProducts << " prices put and got\n";
  return Settle(connection);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "Usage: verbena-example-batch ADDR:PORT\n";
    return 2;
  }
  auto connection = verbena::Connection::Connect(argv[1], verbena::Options{});
  if (!connection.ok()) {
    std::cerr << "verbena-example-batch: " << connection.status() << "\n";
    return 3;
  }
  if (const absl::Status status = Trade(**connection); !status.ok()) {
    std::cerr << "verbena-example-batch: " << status << "\n";
    return 1;
  }
  return 0;
}
