#include "tests/conformance/peer_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace verbena::conformance {

PeerProgram::PeerProgram(const char* mode, size_t buffer) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) std::abort();
  const std::string program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "soft_peer";
  const std::string size = std::to_string(buffer);
  pid = vfork();
  if (pid == 0) {
    dup2(to_child[0], 0);
    dup2(from_child[1], 1);
    execl(program.c_str(), program.c_str(), mode, size.c_str(), nullptr);
    _exit(127);
  }
  close(to_child[0]);
  close(from_child[1]);
  input_ = UniqueFd(to_child[1]);
  FILE* output = fdopen(from_child[0], "r");
  unsigned number = 0;
  if (output == nullptr || std::fscanf(output, "%u", &number) != 1) std::abort();
  std::fclose(output);
  port = static_cast<uint16_t>(number);
}

PeerProgram::~PeerProgram() { Kill(SIGKILL); }

void PeerProgram::Kill(int signal) {
  if (pid <= 0) return;
  kill(pid, signal);
  // A stop takes effect only once its threads have noticed.
  if (signal == SIGSTOP) waitpid(pid, nullptr, WUNTRACED);
  if (signal != SIGKILL) return;
  waitpid(pid, nullptr, 0);
  pid = -1;
}

std::unique_ptr<Endpoint> PeerProgram::Connect(rdma_event_channel* events, const Options& options,
                                               uint64_t* address, uint32_t* rkey) {
  rdma_cm_id* id = ResolvedId(events, port);
  if (id == nullptr) return nullptr;
  auto end = std::make_unique<Endpoint>(id, options);
  rdma_conn_param param = ConnParam(options);
  if (Api().CmConnect(id, &param) != 0) return nullptr;
  const Event up = NextEvent(events);
  if (up.get() == nullptr || up->event != RDMA_CM_EVENT_ESTABLISHED) return nullptr;
  uint64_t where[2];
  std::memcpy(where, up->param.conn.private_data, sizeof(where));
  *address = where[0];
  *rkey = static_cast<uint32_t>(where[1]);
  return end;
}

}  // namespace verbena::conformance
