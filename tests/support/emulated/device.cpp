// An accelerator beside the CPU, emulated in ordinary memory: torch's kind of device PrivateUse1, called `emulated`.
//
// It behaves as CUDA does where programs can go wrong. Operations are queued, in order per stream, and run as late as torch's
// rules allow: when someone synchronizes, or reads a number. Memory is mapped page by page and protected while no operation
// runs, so that a stray read by the host is a crash. Asynchronous copies read and write pinned memory late. Random numbers come
// from generators of the device. The memory has a limit, an operation may fail, and a factor makes a device slow.
// An operation's numbers are those of the CPU's kernels.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <omp.h>
#include <pybind11/pybind11.h>
#include <sys/mman.h>
#include <unistd.h>
#include <torch/csrc/Generator.h>
#include <torch/library.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace {

using at::Tensor;
using c10::Device;
using c10::IValue;
using c10::StreamId;
using Clock = std::chrono::steady_clock;
using Lock = std::lock_guard<std::recursive_mutex>;
using Stack = torch::jit::Stack;

constexpr auto KIND = c10::DeviceType::PrivateUse1;
constexpr int DEVICES = 2;
constexpr size_t PAGE = 4096;
constexpr size_t MOST_TASKS = 4096;  // waiting ones of a stream, whose tensors take memory

std::recursive_mutex& mutex = *new std::recursive_mutex;
thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<StreamId, DEVICES> current_stream{};

// The devices

struct State {
  size_t used = 0, limit = size_t(1) << 40;
  double slowness = 1;
  bool float64 = true;
  int64_t executed = 0, fail_at = 0;
  std::string failure;  // of an operation that had been queued: all that follows fails, as on CUDA
  std::map<StreamId, std::deque<std::function<void()>>> queues;
  StreamId streams = 0;
  at::Generator generator;
};

std::array<State, DEVICES>& states = *new std::array<State, DEVICES>;

double setting(const char* name, double otherwise, int device = 0) {  // `1,20`: one for each device
  const char* text = getenv(name);
  const char* own = text && device ? strchr(text, ',') : nullptr;
  return own ? atof(own + 1) : text ? atof(text) : otherwise;
}

State& state_of(c10::DeviceIndex index) {
  static pid_t process = 0;
  TORCH_CHECK(index >= 0 && index < DEVICES, "no device emulated:", int(index), ": there are ", DEVICES);
  if (process != getpid()) {  // the variables of this process, which may be forked from one that has loaded this library
    process = getpid();
    for (int device = 0; device < DEVICES; ++device) {
      State& state = states[device];
      state.slowness = setting("EMULATED_SLOWNESS", 1, device);
      state.limit = size_t(setting("EMULATED_MEMORY", double(size_t(1) << 40)));
      state.fail_at = int64_t(setting("EMULATED_FAIL_AT", 0));
      state.float64 = setting("EMULATED_FLOAT64", 1) != 0;
      state.executed = 0;
    }
  }
  return states[index];
}

void check_failure(const State& state) {
  if (!state.failure.empty())
    throw c10::AcceleratorError({__func__, __FILE__, uint32_t(__LINE__)}, 700, state.failure);
}

void execute(State& state, const std::function<void()>& operation) {
  const auto began = Clock::now();
  TORCH_CHECK(++state.executed != state.fail_at, "emulated device error at operation ", state.executed);
  const int threads = omp_get_max_threads();  // torch's own for this thread, on which bits may depend
  omp_set_num_threads(1);
  operation();
  omp_set_num_threads(threads);
  if (state.slowness > 1) std::this_thread::sleep_for((Clock::now() - began) * (state.slowness - 1));
}

void run_first(State& state, StreamId stream) {
  auto& queue = state.queues[stream];
  auto task = std::move(queue.front());
  queue.pop_front();
  try {
    task();
  } catch (const c10::Error& error) {
    state.failure = error.what_without_backtrace();
  } catch (const std::exception& error) {
    state.failure = error.what();
  }
  check_failure(state);
}

void run(c10::DeviceIndex device, StreamId stream) {
  Lock lock(mutex);
  State& state = state_of(device);
  check_failure(state);
  while (!state.queues[stream].empty()) run_first(state, stream);
}

void run(c10::DeviceIndex device) {
  Lock lock(mutex);
  for (StreamId stream = 0; stream <= state_of(device).streams; ++stream) run(device, stream);
}

void enqueue(c10::DeviceIndex device, std::function<void()> operation) {
  Lock lock(mutex);
  State& state = state_of(device);
  const StreamId stream = current_stream[device];
  check_failure(state);
  auto& queue = state.queues[stream];
  queue.push_back([&state, operation = std::move(operation)] { execute(state, operation); });
  if (queue.size() > MOST_TASKS) run(device, stream);
}

void run_now(c10::DeviceIndex device, const std::function<void()>& operation) {
  Lock lock(mutex);
  run(device, current_stream[device]);
  execute(state_of(device), operation);
}

// Memory

struct Block {
  size_t mapped, bytes;
  c10::DeviceIndex device;
  int open = 0;
};

std::map<void*, Block>& blocks = *new std::map<void*, Block>;
std::map<char*, size_t>& pinned = *new std::map<char*, size_t>;

class Open {  // Lets an operation reach the memory of its tensors.
 public:
  Open() = default;
  Open(const Open&) = delete;
  ~Open() {
    Lock lock(mutex);
    for (auto& [base, block] : opened_)
      if (--block->open == 0) mprotect(base, block->mapped, PROT_NONE);
  }
  void add(const void* base) {
    Lock lock(mutex);
    auto found = blocks.find(const_cast<void*>(base));
    if (found == blocks.end()) return;
    if (found->second.open++ == 0) mprotect(found->first, found->second.mapped, PROT_READ | PROT_WRITE);
    opened_.emplace_back(found->first, &found->second);
  }

 private:
  Lock lock_{mutex};
  std::vector<std::pair<void*, Block*>> opened_;
};

void release(void* base) {
  Lock lock(mutex);
  auto found = blocks.find(base);
  states[found->second.device].used -= found->second.bytes;
  munmap(base, found->second.mapped);
  blocks.erase(found);
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    Lock lock(mutex);
    const Device device(KIND, current_device);
    if (!bytes) return {nullptr, nullptr, &release_nothing, device};
    State& state = state_of(device.index());
    if (state.used + bytes > state.limit && state.failure.empty()) run(device.index());  // queued operations keep their tensors
    TORCH_CHECK_WITH(
        OutOfMemoryError, state.used + bytes <= state.limit, device, " out of memory: ", bytes, " bytes wanted, ",
        state.limit - state.used, " of ", state.limit, " free");
    const size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(base != MAP_FAILED, "mmap of ", mapped, " bytes failed");
    memset(base, 0xFF, bytes);  // NaN: what nobody wrote
    mprotect(base, mapped, PROT_NONE);
    blocks[base] = {mapped, bytes, device.index()};
    state.used += bytes;
    return {base, base, &release, device};
  }
  static void release_nothing(void*) {}
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    for (int device = 0; device < DEVICES; ++device) run(device);
    Open open;
    open.add(target);
    open.add(source);
    memcpy(target, source, bytes);
  }
};

Memory& memory = *new Memory;

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    Lock lock(mutex);
    void* base = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : nullptr;
    if (base) pinned[static_cast<char*>(base)] = bytes;
    return {base, base, &unpin, Device(c10::kCPU)};
  }
  static void unpin(void* base) {
    Lock lock(mutex);
    for (int device = 0; device < DEVICES; ++device)  // a copy from or to it may wait
      if (states[device].failure.empty()) run(device);
    pinned.erase(static_cast<char*>(base));
    free(base);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void* target, const void* source, size_t bytes) const override { memcpy(target, source, bytes); }
};

PinnedMemory& pinned_memory = *new PinnedMemory;

bool is_pinned(const void* pointer) {
  Lock lock(mutex);
  auto* at = const_cast<char*>(static_cast<const char*>(pointer));
  auto after = pinned.upper_bound(at);
  if (after == pinned.begin()) return false;
  auto& [base, bytes] = *std::prev(after);
  return at < base + bytes;
}

// Tensors

bool on_device(const Tensor& x) { return x.defined() && x.device().type() == KIND; }

// A number of Python weighs less than a tensor where types are promoted: `x` says which `same` is.
Tensor as_scalar(Tensor same, const Tensor& x) {
  if (x.unsafeGetTensorImpl()->is_wrapped_number()) same.unsafeGetTensorImpl()->set_wrapped_number(true);
  return same;
}

// The same numbers, whatever happens to x itself; those of a CPU tensor are copied, as a launched kernel has its arguments.
Tensor kept(const Tensor& x) {
  if (!x.defined()) return x;
  Tensor copy = on_device(x) ? at::native::as_strided_tensorimpl(x, x.sizes(), x.strides(), x.storage_offset()) : x.clone();
  return as_scalar(copy, x);
}

// The same memory as a CPU tensor.
Tensor as_cpu(const Tensor& x) {
  if (!on_device(x)) return x;
  const auto& storage = x.storage();
  c10::Storage same(
      c10::Storage::use_byte_size_t(), storage.nbytes(), c10::DataPtr(storage.mutable_data(), Device(c10::kCPU)), nullptr, false);
  Tensor view = at::detail::make_tensor<c10::TensorImpl>(std::move(same), c10::DispatchKeySet(c10::DispatchKey::CPU), x.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return as_scalar(view, x);
}

Tensor as_meta(const Tensor& x) {
  if (!on_device(x)) return x;
  Tensor form = at::empty_strided(x.sizes(), x.strides(), x.options().device(c10::kMeta));
  return as_scalar(form, x);
}

// What `out=` gives to an operation, which finds form and numbers by itself.
Tensor blank(const Tensor& x) { return at::empty({0}, x.options().device(c10::kCPU)); }
Tensor blank_meta(const Tensor& x) { return at::empty({0}, x.options().device(c10::kMeta)); }

template <class Function>
IValue mapped(const IValue& value, Device device, const Function& function) {
  if (value.isTensor()) return function(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& x : value.toTensorVector()) list.push_back(function(x));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (std::optional<Tensor> x : value.toOptionalTensorList()) list.push_back(x ? std::optional(function(*x)) : x);
    return list;
  }
  return value.isDevice() && value.toDevice().type() == KIND ? IValue(device) : value;
}

template <class Function>
void each_tensor(const IValue& value, const Function& function) {
  mapped(value, Device(KIND, 0), [&](const Tensor& x) {
    if (x.defined()) function(x);
    return x;
  });
}

// Random numbers

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index, at::Generator inner = at::detail::createCPUGenerator())
      : GeneratorImpl(Device(KIND, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), inner_(std::move(inner)) {}
  void set_current_seed(uint64_t seed) override { inner_.set_current_seed(seed); }
  void set_offset(uint64_t) override { TORCH_CHECK(false, "an emulated generator has no offset"); }
  uint64_t get_offset() const override { TORCH_CHECK(false, "an emulated generator has no offset"); }
  uint64_t current_seed() const override { return inner_.current_seed(); }
  uint64_t seed() override { return inner_.seed(); }
  void set_state(const c10::TensorImpl& state) override {
    inner_.set_state(Tensor(c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(const_cast<c10::TensorImpl*>(&state))));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return inner_.get_state().getIntrusivePtr(); }
  Generator* clone_impl() const override { return new Generator(device().index(), inner_.clone()); }
  uint64_t draw() {
    std::lock_guard<std::mutex> lock(inner_.mutex());
    return at::check_generator<at::CPUGeneratorImpl>(inner_)->random64();
  }

 private:
  at::Generator inner_;
};

at::Generator& default_generator(c10::DeviceIndex index) {
  State& state = state_of(index < 0 ? current_device : index);
  if (!state.generator.defined()) state.generator = at::make_generator<Generator>(index < 0 ? current_device : index);
  return state.generator;
}

// Operations

struct Below {  // No autograd, no autocast, no modes: an operation itself.
  c10::impl::ForceDispatchKeyGuard keys{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect), c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
  at::NoGradGuard no_grad;
};

Tensor empty_like_form(const Tensor& form, Device device) {
  return form.defined() ? at::empty_strided(form.sizes(), form.strides(), form.options().device(device)) : Tensor();
}

Device device_of(const c10::FunctionSchema& schema, c10::ArrayRef<IValue> args) {
  Device device(KIND, current_device);
  bool found = false;
  for (const IValue& arg : args) {
    each_tensor(arg, [&](const Tensor& x) {
      if (!on_device(x)) return;
      TORCH_CHECK(
          !found || x.device() == device, "Expected all tensors to be on the same device, but found at least two devices, ", device,
          " and ", x.device(), "! (", schema.name(), ")");
      device = x.device();
      found = true;
    });
    if (!found && arg.isDevice() && arg.toDevice().type() == KIND && arg.toDevice().has_index()) device = arg.toDevice();
  }
  return device;
}

// CUDA takes numbers (0 axes) and indices of the CPU, and refuses all else.
void refuse_others(const c10::FunctionSchema& schema, c10::ArrayRef<IValue> args, Device device) {
  const bool indexes = schema.name().find("index") != std::string::npos;
  for (size_t at = 0; at < args.size(); ++at) {
    const auto* alias = schema.arguments()[at].alias_info();
    const bool written = alias && alias->isWrite(), index = indexes && args[at].isOptionalTensorList();
    each_tensor(args[at], [&](const Tensor& x) {
      TORCH_CHECK(
          on_device(x) || (x.device().is_cpu() && !written && (index || x.dim() == 0)),
          "Expected all tensors to be on the same device, but found at least two devices, ", device, " and ", x.device(), "! (",
          schema.name(), ")");
    });
  }
}

// Shapes of an operation's results, found without its numbers; none if torch cannot tell them so.
std::optional<Stack> forms_of(const c10::OperatorHandle& op, const Stack& args) {
  static std::set<std::string>& unknown = *new std::set<std::string>;
  const std::string name = c10::toString(op.operator_name());
  if (name == "aten::relu" || name == "aten::native_dropout_backward") return Stack{at::empty_like(as_meta(args[0].toTensor()))};
  if (name == "aten::index_select") {
    const Tensor x = args[0].toTensor();
    std::vector<int64_t> size = x.sizes().vec();
    size[c10::maybe_wrap_dim(args[1].toInt(), x.dim())] = args[2].toTensor().numel();
    return Stack{at::empty(size, x.options().device(c10::kMeta))};
  }
  {
    Lock lock(mutex);
    if (unknown.count(name)) return std::nullopt;
  }
  Stack stack;
  for (size_t at = 0; at < args.size(); ++at) {
    const auto& argument = op.schema().arguments()[at];
    const Device meta(c10::kMeta);
    stack.push_back(argument.name() == "generator" ? IValue() : mapped(args[at], meta, argument.is_out() ? blank_meta : as_meta));
  }
  try {
    Below below;
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    Lock lock(mutex);
    if (name.find("index") == std::string::npos) unknown.insert(name);  // with masks the shape depends on numbers
    return std::nullopt;
  }
  return stack;
}

// Run an operation by the CPU's kernel; returns its results. Those that are new, or for `out=`, are CPU tensors.
Stack computed(const c10::OperatorHandle& op, const Stack& args, uint64_t seed, Open& open) {
  for (const IValue& arg : args) each_tensor(arg, [&](const Tensor& x) { if (on_device(x)) open.add(x.storage().data()); });
  Stack stack;
  for (size_t at = 0; at < args.size(); ++at) {
    const auto& argument = op.schema().arguments()[at];
    if (argument.name() == "generator")
      stack.push_back(at::detail::createCPUGenerator(seed));
    else
      stack.push_back(mapped(args[at], Device(c10::kCPU), argument.is_out() ? blank : as_cpu));
  }
  op.callBoxed(&stack);
  return stack;
}

void write(const Tensor& target, const Tensor& source, Open& open) {
  if (!target.defined() || !target.numel()) return;
  TORCH_CHECK(target.sizes() == source.sizes() && target.dtype() == source.dtype(), "emulated: results of another form");
  open.add(target.storage().data());
  as_cpu(target).copy_(source);
}

void launch_as(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const Stack given(stack->end() - count, stack->end());
  const Device device = device_of(schema, given);
  refuse_others(schema, given, device);
  uint64_t seed = 0;
  Stack args;
  bool resizes = false;
  for (size_t at = 0; at < count; ++at) {
    const auto& argument = schema.arguments()[at];
    if (argument.name() == "generator") {
      const at::Generator own = given[at].isNone() ? default_generator(device.index()) : given[at].toGenerator();
      TORCH_CHECK(own.device() == device, "Expected a '", device, "' generator device but found '", own.device(), "'");
      seed = static_cast<Generator*>(own.unsafeGetGeneratorImpl())->draw();
    }
    resizes |= argument.is_out();
    args.push_back(mapped(given[at], device, kept));
  }
  std::optional<Stack> forms;
  bool of_tensors = true;
  for (const auto& result : schema.returns()) of_tensors &= result.type()->kind() == c10::TypeKind::TensorType;
  if (of_tensors) forms = forms_of(op, given);
  torch::jit::drop(*stack, count);
  Stack results;
  std::vector<std::pair<size_t, Tensor>> fresh;
  for (size_t at = 0; at < schema.returns().size(); ++at) {
    const auto* alias = schema.returns()[at].alias_info();
    TORCH_CHECK(!alias || alias->isWrite(), "emulated: ", schema.name(), " makes a view, and has no kernel of its own");
    if (alias) {
      for (size_t from = 0; from < count; ++from) {
        const auto* other = schema.arguments()[from].alias_info();
        if (!other || *other != *alias) continue;
        results.push_back(given[from]);
        if (resizes && forms) {
          const Tensor target = given[from].toTensor();
          if (target.sizes() != (*forms)[at].toTensor().sizes()) target.resize_((*forms)[at].toTensor().sizes());
          fresh.emplace_back(at, kept(target));
        }
      }
    } else if (forms) {
      fresh.emplace_back(at, empty_like_form((*forms)[at].toTensor(), device));
      results.emplace_back(fresh.back().second);
    } else {
      results.emplace_back();
    }
  }
  TORCH_CHECK(results.size() == schema.returns().size(), "emulated: results of ", schema.name());
  if (of_tensors && (forms || (!resizes && std::all_of(results.begin(), results.end(), [](const IValue& x) { return !x.isNone(); })))) {
    enqueue(device.index(), [op, args, seed, fresh] {
      Open open;
      Below below;
      const Stack found = computed(op, args, seed, open);
      for (const auto& [at, target] : fresh) write(target, found[at].toTensor(), open);
    });
  } else {
    run_now(device.index(), [&] {
      Open open;
      Below below;
      const Stack found = computed(op, args, seed, open);
      const auto moved = [&](const Tensor& x) {
        Tensor target = empty_like_form(x, device);
        write(target, x, open);
        return target;
      };
      for (size_t at = 0; at < results.size(); ++at) {
        if (!schema.returns()[at].alias_info()) {
          results[at] = mapped(found[at], device, moved);
        } else if (resizes) {
          const Tensor target = results[at].toTensor(), source = found[at].toTensor();
          if (target.sizes() != source.sizes()) target.resize_(source.sizes());
          write(target, source, open);
        }
      }
    });
  }
  for (IValue& result : results) stack->push_back(std::move(result));
}

void launch(const c10::OperatorHandle& op, Stack* stack) { launch_as(op, stack); }

c10::OperatorHandle operation(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

// Overrideable operations have no CPU kernel of their name.
void convolution(const c10::OperatorHandle&, Stack* stack) { launch_as(operation("aten::convolution"), stack); }

void convolution_backward(const c10::OperatorHandle&, Stack* stack) {
  const Tensor weight = stack->at(stack->size() - 10 + 2).toTensor();
  const bool transposed = stack->at(stack->size() - 10 + 6).toBool();
  const int64_t outputs = transposed ? weight.size(1) * stack->at(stack->size() - 10 + 8).toInt() : weight.size(0);
  stack->insert(stack->end() - 7, IValue(std::vector<int64_t>{outputs}));
  launch_as(operation("aten::convolution_backward"), stack);
}

void check_type(std::optional<at::ScalarType> dtype) {  // as mps, which has no double precision
  TORCH_CHECK_TYPE(
      c10::dtype_or_default(dtype) != at::kDouble || state_of(current_device).float64,
      "Cannot convert a tensor to float64 on a device that has no float64");
}

Tensor empty(
    at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<Device> device,
    std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device && device->has_index() ? *device : Device(KIND, current_device));
  check_type(dtype);
  return at::detail::empty_generic(
      size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device && device->has_index() ? *device : Device(KIND, current_device));
  check_type(dtype);
  return at::detail::empty_strided_generic(
      size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

void grow(const c10::Storage& storage, size_t bytes) {
  Lock lock(mutex);
  const auto device = storage.device();
  c10::DeviceGuard guard(device);
  c10::DataPtr larger = memory.allocate(bytes);
  if (storage.nbytes()) {
    run(device.index());
    Open open;
    open.add(larger.get());
    open.add(storage.data());
    memcpy(larger.get(), storage.data(), std::min(bytes, storage.nbytes()));
  }
  storage.set_data_ptr_noswap(std::move(larger));
  storage.set_nbytes(bytes);
}

const Tensor& resize(const Tensor& x, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = x.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format) impl->empty_tensor_restride(*format);
  const size_t bytes = (impl->storage_offset() + impl->numel()) * impl->itemsize();
  if (bytes > x.storage().nbytes()) grow(x.storage(), bytes);
  return x;
}

Tensor& set_storage(Tensor& x, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  auto* impl = x.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.data()) {
    impl->set_sizes_and_strides(size, stride, offset);
  } else {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  }
  return x;
}

at::Scalar scalar_of(const Tensor& x) {
  at::Scalar number;
  const Tensor one = kept(x);
  run_now(x.device().index(), [&] {
    Open open;
    Below below;
    open.add(one.storage().data());
    number = as_cpu(one).item();
  });
  return number;
}

Tensor copy_from(const Tensor& source, const Tensor& target, bool non_blocking) {
  const auto copy = [](const Tensor& target, const Tensor& source) {
    Open open;
    Below below;
    for (const Tensor& x : {target, source})
      if (on_device(x)) open.add(x.storage().data());
    as_cpu(target).copy_(as_cpu(source));
  };
  if (!target.numel()) return target;
  if (on_device(source) && on_device(target)) {
    if (source.device() != target.device()) run(source.device().index(), current_stream[source.device().index()]);
    enqueue(target.device().index(), [copy, to = kept(target), from = kept(source)] { copy(to, from); });
  } else if (on_device(target)) {
    const bool late = non_blocking && is_pinned(source.storage().data());
    enqueue(target.device().index(), [copy, to = kept(target), from = late ? source.detach() : source.clone()] { copy(to, from); });
    if (!non_blocking) run(target.device().index(), current_stream[target.device().index()]);
  } else if (non_blocking && is_pinned(target.storage().data())) {
    enqueue(source.device().index(), [copy, to = target.detach(), from = kept(source)] { copy(to, from); });
  } else {
    run_now(source.device().index(), [&] { copy(target, source); });
  }
  return target;
}

Tensor copy_and_resize(const Tensor& source, const Tensor& target) {
  if (source.sizes() != target.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, false);
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) return {x.clone(), at::ones_like(x, x.options().dtype(at::kBool))};
  Tensor mask = at::empty_like(x).bernoulli_(1 - p);
  Tensor kept_numbers = p == 1 ? at::zeros_like(x) : x.mul(mask).mul_(1 / (1 - p));
  return {kept_numbers, mask.to(at::kBool)};
}

using Given = const std::optional<Tensor>&;

Tensor sum_of(const Tensor& x, const Tensor& y, Given first, Given second) {
  Tensor total = x + y;
  if (first && first->defined()) total = total + *first;
  if (second && second->defined()) total = total + *second;
  return total;
}

// Differentiable as they stand, for autograd: the fused kernels exist for CUDA only.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& x, const Tensor& h, const Tensor& c, Given bias_x, Given bias_h) {
  const auto gates = sum_of(x, h, bias_x, bias_h).chunk(4, 1);
  Tensor cell = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
  return {gates[3].sigmoid() * cell.tanh(), cell, at::empty({0}, x.options())};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& x, const Tensor& h, const Tensor& state, Given bias_x, Given bias_h) {
  const auto of_x = (bias_x && bias_x->defined() ? x + *bias_x : x).chunk(3, 1);
  const auto of_h = (bias_h && bias_h->defined() ? h + *bias_h : h).chunk(3, 1);
  Tensor reset = (of_x[0] + of_h[0]).sigmoid(), update = (of_x[1] + of_h[1]).sigmoid();
  Tensor fresh = (of_x[2] + reset * of_h[2]).tanh();
  return {(state - fresh) * update + fresh, at::empty({0}, x.options())};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&launch>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", [](Tensor& x, at::Storage source) -> Tensor& {
    const int64_t numbers = source.nbytes() / x.itemsize();
    return set_storage(x, std::move(source), 0, {numbers}, {});
  });
  m.impl("set_.source_Tensor", [](Tensor& x, const Tensor& source) -> Tensor& {
    return set_storage(x, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  });
  m.impl("set_", [](Tensor& x) -> Tensor& {
    return set_storage(x, at::empty({0}, x.options()).storage(), 0, {0}, {});
  });
  m.impl("_local_scalar_dense", scalar_of);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_and_resize);
  m.impl("native_dropout", native_dropout);
  m.impl("record_stream", [](Tensor&, at::Stream) {});  // memory is kept until what is queued has run
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_gru_cell", gru_cell);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_gru_cell", gru_cell);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define SINGLE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(SINGLE)
}

// Streams and events

struct Event {
  c10::DeviceIndex device = 0;
  StreamId stream = 0;
  uint64_t recorded = 0, reached = 0;
  Clock::time_point time;
};

void run_until(const Event& event, uint64_t version) {
  Lock lock(mutex);
  while (event.reached < version) run_first(states[event.device], event.stream);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  Device exchangeDevice(Device device) const override {
    Device before = getDevice();
    setDevice(device);
    return before;
  }
  Device getDevice() const override { return Device(KIND, current_device); }
  void setDevice(Device device) const override {
    state_of(device.index());
    current_device = device.index();
  }
  void uncheckedSetDevice(Device device) const noexcept override { current_device = device.index(); }
  c10::Stream getStream(Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream[device.index()]);
  }
  c10::Stream getDefaultStream(Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getNewStream(Device device, int) const override {
    Lock lock(mutex);
    return c10::Stream(c10::Stream::UNSAFE, device, ++state_of(device.index()).streams);
  }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_stream[stream.device_index()] = stream.id();
    return before;
  }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}  // a queued task may point to it
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    Lock lock(mutex);
    if (!*event) *event = new Event;
    auto* one = static_cast<Event*>(*event);
    one->device = stream.device_index();
    one->stream = stream.id();
    const uint64_t version = ++one->recorded;
    states[one->device].queues[one->stream].push_back([one, version] {
      one->reached = version;
      one->time = Clock::now();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    Lock lock(mutex);
    auto* one = static_cast<Event*>(event);
    states[stream.device_index()].queues[stream.id()].push_back([one, version = one->recorded] { run_until(*one, version); });
  }
  bool queryEvent(void* event) const override {
    if (!event) return true;
    Lock lock(mutex);
    auto* one = static_cast<Event*>(event);
    if (one->reached < one->recorded) run_first(states[one->device], one->stream);
    return one->reached == one->recorded;
  }
  bool queryStream(const c10::Stream& stream) const override {
    Lock lock(mutex);
    auto& queue = state_of(stream.device_index()).queues[stream.id()];
    if (!queue.empty()) run_first(states[stream.device_index()], stream.id());
    return queue.empty();
  }
  void synchronizeStream(const c10::Stream& stream) const override { run(stream.device_index(), stream.id()); }
  void synchronizeEvent(void* event) const override {
    if (event) run_until(*static_cast<Event*>(event), static_cast<Event*>(event)->recorded);
  }
  void synchronizeDevice(c10::DeviceIndex index) const override { run(index); }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(static_cast<Event*>(second)->time - static_cast<Event*>(first)->time).count();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  void setCurrentDevice(c10::DeviceIndex index) const override { Guard().setDevice(Device(KIND, index)); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return Guard().exchangeDevice(Device(KIND, index)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device : exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current_device : index);
  }
  bool isPinnedPtr(const void* pointer) const override { return is_pinned(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override { grow(storage, bytes); }
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(KIND, &memory);
  m.def("set_device", [](int index) { Guard().setDevice(Device(KIND, index)); });
  m.def("current_device", [] { return int(current_device); });
  m.def("synchronize", [](int index) {
    pybind11::gil_scoped_release release_gil;
    run(index);
  });
  m.def("default_generator", [](int index) {
    return pybind11::reinterpret_steal<pybind11::object>(THPGenerator_initDefaultGenerator(default_generator(index)));
  });
  m.def("memory", [](int index) { return std::pair(state_of(index).limit - state_of(index).used, state_of(index).limit); });
  m.def("limit_memory", [](int index, size_t bytes) { state_of(index).limit = bytes; });
  m.def("slow_down", [](int index, double factor) { state_of(index).slowness = factor; });
  m.def("refuse_float64", [](int index, bool refuse) { state_of(index).float64 = !refuse; });
  m.def("fail_at", [](int index, int64_t operation) {
    Lock lock(mutex);
    State& state = state_of(index);
    state.fail_at = operation ? state.executed + operation : 0;
  });
  m.def("revive", [](int index) {  // after a failure: what is queued is lost
    Lock lock(mutex);
    State& state = state_of(index);
    state.failure.clear();
    state.queues.clear();
    state.fail_at = 0;
  });
  m.def("queued", [](int index) {
    Lock lock(mutex);
    size_t total = 0;
    for (const auto& [stream, queue] : state_of(index).queues) total += queue.size();
    return total;
  });
  m.def("executed", [](int index) { return state_of(index).executed; });
}
