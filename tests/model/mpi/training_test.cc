// Training between the processes of an mpirun: the layout law, and checkpoints that all write.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "comm/communicator.h"
#include "model/checkpoint.h"
#include "model/layouts.h"

namespace sinew::model {
namespace {

namespace fs = std::filesystem;

// One directory for all ranks; rank 0 makes and removes it.
class SharedDirectory {
 public:
  explicit SharedDirectory(comm::Communicator& world) : world_(world) {
    std::int64_t id = ::getpid();
    world.broadcast(&id, &id, 1, DType::kI64, 0);
    path_ = fs::temp_directory_path() / ("sinew-mpi-" + std::to_string(id));
    if (world.rank() == 0) {
      fs::create_directories(path_);
      std::ofstream(path_ / "model.json")
          << R"({"layers": 4, "heads": 24, "channels": 48, "vocabulary": 256, "max_time": 8})";
      std::ofstream(path_ / "wide.json")
          << R"({"layers": 2, "heads": 4, "channels": 128, "vocabulary": 256, "max_time": 128})";
      std::ofstream text(path_ / "data.txt");
      for (int i = 0; i < 400; ++i) text << "line " << i * 37 % 101 << "\n";
    }
    world.barrier();
  }
  ~SharedDirectory() {
    world_.barrier();
    std::error_code ignored;
    if (world_.rank() == 0) fs::remove_all(path_, ignored);
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  [[nodiscard]] std::string path(const std::string& name) const { return path_ / name; }

 private:
  comm::Communicator& world_;
  fs::path path_;
};

TrainOptions base_options(const SharedDirectory& directory) {
  TrainOptions options;
  options.model = directory.path("model.json");
  options.batch = 24;
  options.seq = 5;
  options.clip = 0.5;
  options.threads = 1;
  return options;
}

TEST(TrainingMpi, LayoutsOfTheseProcessesTrainTheModelOfOneRank) {
  const auto world = comm::Communicator::from_mpi({});
  const SharedDirectory directory(*world);
  TrainOptions base = base_options(directory);
  base.dtype = "f64";
  base.dropout = 0.1;
  base.seq = 8;
  const auto alone = world->split(world->rank(), 0);
  const TrainPlan single = make_plan(base, 1);
  const Batch batch = make_batch(single, 5);
  const LayoutRun reference = run_layout(single, *alone, batch, 2);
  // At most thirty, evenly over the list: the same on every rank. `sinew layouts` runs all.
  std::vector<TrainOptions> layouts = enumerate_layouts(base, world->world(), {3});
  for (TrainOptions& options : enumerate_sequence_layouts(base, world->world()))
    layouts.push_back(std::move(options));
  const std::size_t stride = layouts.size() / 30 + 1;
  for (std::size_t i = 0; i < layouts.size(); i += stride) {
    const TrainOptions& options = layouts[i];
    const LayoutRun run = run_layout(make_plan(options, world->world()), *world, batch, 2);
    const LayoutError error = compare_runs(reference, run);
    EXPECT_LE(error.largest(), layout_bound("f64"))
        << name_of(options) << ", worst " << error.worst_tensor;
  }
}

// Half a MiB from stage to stage: more than a slot holds, so that a message is on its way while its
// sender waits for its tensor-parallel peers.
TEST(TrainingMpi, StagesWithMessagesLargerThanSlotsTrainTheModelOfOneRank) {
  const auto world = comm::Communicator::from_mpi({.timeout_s = 30});
  if (world->world() % 4 != 0) GTEST_SKIP() << "two stages of two tensor ranks need 4 or 8 ranks";
  const SharedDirectory directory(*world);
  TrainOptions options;
  options.model = directory.path("wide.json");
  options.batch = 16;
  options.seq = 128;
  options.threads = 1;
  const auto alone = world->split(world->rank(), 0);
  const TrainPlan single = make_plan(options, 1);
  const Batch batch = make_batch(single, 5);
  const LayoutRun reference = run_layout(single, *alone, batch, 1);
  options.tp = 2;
  options.pp = 2;
  options.microbatches = 2;
  const LayoutRun run = run_layout(make_plan(options, world->world()), *world, batch, 1);
  const LayoutError error = compare_runs(reference, run);
  EXPECT_LE(error.largest(), layout_bound("f32"))
      << "loss " << error.loss << ", norm " << error.norm << ", gradients " << error.gradient
      << ", weights " << error.weight << ", worst " << error.worst_tensor;
}

TEST(TrainingMpi, ACheckpointThatAllProcessesWroteResumesBitEqual) {
  const auto world = comm::Communicator::from_mpi({});
  const SharedDirectory directory(*world);
  TrainOptions options = base_options(directory);
  options.data = directory.path("data.txt");
  options.steps = 4;
  options.zero = 1;
  options.tp = world->world() % 2 == 0 ? 2 : 1;
  options.pp = world->world() % 4 == 0 ? 2 : 1;
  const TrainPlan plan = make_plan(options, world->world());
  const auto trainer = Trainer::create(plan, *world);
  for (int i = 0; i < 2; ++i) static_cast<void>(trainer->step());
  trainer->save(directory.path("run"));
  for (int i = 0; i < 2; ++i) static_cast<void>(trainer->step());
  const Trainer::Tensors expected = trainer->gather_weights();

  options.resume = directory.path("run");
  const auto resumed = Trainer::create(make_plan(options, world->world()), *world);
  EXPECT_EQ(resumed->steps_done(), 2);
  for (int i = 0; i < 2; ++i) static_cast<void>(resumed->step());
  EXPECT_EQ(resumed->gather_weights(), expected);
}

}  // namespace
}  // namespace sinew::model
