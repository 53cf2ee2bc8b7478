// A block's shared memory: one arena, objects placed in the order in which the block first meets
// them.
#include "kernels/device/twin/state.h"

namespace sinew::twin {

void* shared_object(const void* key, std::size_t size_bytes, std::size_t alignment) {
  Block& block = *self().block;
  for (int i = 0; i < block.object_count; ++i) {
    const SharedObject& object = block.objects[static_cast<std::size_t>(i)];
    if (object.key == key) return block.arena + object.offset;
  }
  const std::size_t offset = (block.static_top + alignment - 1) / alignment * alignment;
  if (offset + size_bytes + kRedZoneBytes > kDynamicOffset) {
    fail("%zu bytes of static shared memory: the twin has %zu, use dynamic", offset + size_bytes,
         kDynamicOffset);
  }
  if (offset + size_bytes + block.dynamic_bytes > kDynamicBytesMax)
    fail("static and dynamic shared memory over 227 KiB");
  if (block.object_count == static_cast<int>(block.objects.size()))
    fail("too many objects in shared memory");
  block.objects[static_cast<std::size_t>(block.object_count++)] = {key, offset};
  block.static_top = offset + size_bytes + kRedZoneBytes;
  unpoison(block.arena + offset, size_bytes);
  return block.arena + offset;
}

void* shared_dynamic() { return self().block->arena + kDynamicOffset; }

std::uint32_t shared_address(const void* pointer) {
  const Block& block = *self().block;
  const char* byte = static_cast<const char*>(pointer);
  if (byte < block.arena || byte >= block.arena + kArenaBytes) {
    fail("pointer %p is not in this block's shared memory", pointer);
  }
  return static_cast<std::uint32_t>(byte - block.arena);
}

}  // namespace sinew::twin
