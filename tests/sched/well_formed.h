// What every SVG drawing must be.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sinew::sched {

// The tags of `text` open and close in pairs, and it speaks of nothing outside itself but its name
// space.
inline void expect_well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.front() == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
  }
  EXPECT_TRUE(open.empty());
  for (const char* outside : {"href", "url(", "@import", "<script", "<image"}) {
    EXPECT_EQ(text.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(text.find("http"), text.find("http://www.w3.org/2000/svg"));
  EXPECT_EQ(text.rfind("http"), text.find("http"));
}

}  // namespace sinew::sched
