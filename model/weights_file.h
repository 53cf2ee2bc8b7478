// WeightsFile: trained weights by their Hugging Face names, whatever holds them: a .safetensors
// file, a folder or a model.safetensors.index.json of several (shards), or a .bin file of llm.c.
//
// Never does: know ranks or layouts (checkpoint.h does). Threads: one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/llmc_model.h"
#include "model/safetensors.h"
#include "model/tensor.h"

namespace sinew::model {

struct Parameter;

class WeightsFile {
 public:
  // Throws UsageError in one line naming the file, what was found and what is read.
  explicit WeightsFile(const std::string& path);

  // As SafetensorsFile::require; valid until the next call.
  [[nodiscard]] Tensor require(const std::string& name, const std::vector<std::int64_t>& shape);

  // Throws UsageError naming a tensor that is stored and that the model of these parameters does
  // not have: it would be another model. What files hold beside weights (attention's masks, rotary
  // frequencies) and a head that is tied and stored again, with the table's values, may be there.
  void check_nothing_else(const std::vector<Parameter>& parameters);

 private:
  void open_shards(const std::string& index_path);
  [[nodiscard]] const SafetensorsFile& holder(const std::string& name) const;

  std::string path_;
  std::unique_ptr<LlmcModelFile> llmc_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // by stored name
};

}  // namespace sinew::model
