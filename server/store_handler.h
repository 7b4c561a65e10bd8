// Joins the network side to a store: what a request asks for, in the store's terms.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/net/handler.h"
#include "server/storage/allocator.h"
#include "server/storage/store.h"

namespace verbena::server {

// Thread-safe as RequestHandler asks for. The store must outlive it.
class StoreHandler : public net::RequestHandler {
 public:
  // `info` answers Info(); it may be called by any worker.
  StoreHandler(storage::Store& store, std::function<std::string()> info)
      : store_(store), info_(std::move(info)) {}

  void Expect(std::span<const std::string_view> keys) override { store_.Prefetch(keys); }
  net::Lookup Get(int worker, std::string_view key, std::span<uint8_t> room, bool pin) override;
  void Release(int worker, uint64_t pin) override { store_.Unpin(worker, pin); }
  net::Change Put(int worker, const wire::Operation& operation) override;
  net::Change Delete(int worker, const wire::Operation& operation) override;
  net::Lookup Take(int worker, const wire::Operation& operation, std::span<uint8_t> room) override;
  net::Change Add(int worker, const wire::Operation& operation) override;
  net::Change Append(int worker, const wire::Operation& operation) override;
  net::Change Expire(int worker, const wire::Operation& operation) override;
  net::TimeLeft Ttl(int worker, std::string_view key) override;
  net::ScanPage Scan(const wire::Operation& operation, std::span<uint8_t> room) override;
  void Touch(std::string_view hashes) override;
  net::Change Prepare(int worker, const wire::Operation& operation,
                      std::unique_ptr<net::PendingChange>* pending) override;
  net::Change Publish(int worker, std::unique_ptr<net::PendingChange> pending) override;
  void ReturnSpare(int worker) override { store_.allocator().FlushCache(worker); }
  std::string Info() override { return info_(); }

 private:
  storage::Store& store_;
  std::function<std::string()> info_;
};

}  // namespace verbena::server
