#include "server/net/credits.h"

#include <algorithm>

namespace verbena::net {

uint32_t ConnectionCredits::OnResponse(CreditPool& pool, uint32_t wanted) {
  --unanswered_;
  if (wanted > 0) {
    quiet_ = 0;
    if (grant_ < window_) grant_ += pool.Take(std::min(wanted, window_ - grant_));
  } else if (pool.tight() || ++quiet_ >= kQuietResponses) {
    quiet_ = 0;
    Lower(pool);
  }
  return grant_;
}

void ConnectionCredits::Close(CreditPool& pool) {
  pool.Give(grant_ - 1);
  grant_ = 1;
  unanswered_ = 0;
}

}  // namespace verbena::net
