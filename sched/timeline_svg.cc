// The SVG drawing: one band per lane, one rectangle per span, a scale, a legend. Self-contained: no
// script, style sheet, font or image from elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "sched/timeline.h"
#include "sched/timeline_scale.h"
#include "sched/xml_text.h"

namespace sinew::sched {

namespace {

struct Colour {
  double red;
  double green;
  double blue;
};

// The palette of Okabe and Ito ("Color universal design", 2008): eight colours that people with any
// kind of colour blindness tell apart. Black is left to text.
constexpr Colour kBlue = {0x00, 0x72, 0xB2};
constexpr Colour kOrange = {0xE6, 0x9F, 0x00};
constexpr Colour kGreen = {0x00, 0x9E, 0x73};
constexpr Colour kSky = {0x56, 0xB4, 0xE9};
constexpr Colour kPurple = {0xCC, 0x79, 0xA7};
constexpr Colour kVermilion = {0xD5, 0x5E, 0x00};
constexpr Colour kYellow = {0xF0, 0xE4, 0x42};

struct Kind {
  char first;  // of the label
  Colour colour;
  const char* meaning;  // empty: the letters the label begins with
};

constexpr std::array kKinds = {
    Kind{'F', kBlue, "forward"},
    Kind{'B', kOrange, "backward"},
    Kind{'W', kGreen, "weight gradient"},
    Kind{'>', kSky, "message forward"},
    Kind{'<', kPurple, "message backward"},
    Kind{'r', kVermilion, ""},
    Kind{'s', kSky, ""},
    Kind{'c', kGreen, ""},
};
constexpr std::array kOtherColours = {kBlue, kOrange, kGreen, kSky, kPurple, kVermilion, kYellow};

const Kind* find_kind(const std::string& label) {
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& k) {
    return !label.empty() && k.first == label[0];
  });
  return kind == kKinds.end() ? nullptr : &*kind;
}

Colour colour_of(const std::string& label) {
  if (const Kind* kind = find_kind(label)) return kind->colour;
  const std::size_t first = label.empty() ? 0 : static_cast<unsigned char>(label[0]);
  return kOtherColours[first % kOtherColours.size()];
}

std::string meaning_of(const std::string& label) {
  const Kind* kind = find_kind(label);
  if (kind != nullptr && kind->meaning[0] != '\0') return kind->meaning;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::size_t letters = 0;
  while (letters < label.size() && is_letter(label[letters])) ++letters;
  return label.substr(0, std::max<std::size_t>(letters, 1));
}

// Mixes in white, a third of what is left per step: light enough to differ, dark enough to keep the
// hue.
Colour shaded(Colour colour, int shade) {
  const double keep = std::pow(2.0 / 3.0, std::clamp(shade, 0, 4));
  const auto mix = [keep](double channel) { return 255 - (255 - channel) * keep; };
  return {mix(colour.red), mix(colour.green), mix(colour.blue)};
}

// Black or white, whichever contrasts more by the relative luminance of WCAG 2.
const char* text_colour(Colour background) {
  const auto linear = [](double channel) {
    const double c = channel / 255;
    return c <= 0.03928 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  };
  const double luminance = 0.2126 * linear(background.red) + 0.7152 * linear(background.green) +
                           0.0722 * linear(background.blue);
  return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#111" : "#fff";
}

std::string hex(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", static_cast<int>(std::lround(colour.red)),
                     static_cast<int>(std::lround(colour.green)),
                     static_cast<int>(std::lround(colour.blue)));
}

// Pixels. A character of the 12 px sans-serif font is taken as 7.2 wide: a digit has 6.8, a W 11.
constexpr double kPlotWidthMin = 1100;
constexpr double kPlotWidthMax = 2600;
constexpr double kMargin = 16;
constexpr double kTitleHeight = 26;
constexpr double kLegendHeight = 26;
constexpr double kMainLane = 28;
constexpr double kOtherLane = 16;
constexpr double kLaneGap = 2;
constexpr double kRowGap = 8;
constexpr double kCharacter = 7.2;
constexpr double kLabelMargin = 5;  // both sides together
constexpr double kScaleHeight = 30;

class Svg {
 public:
  explicit Svg(const Timeline& timeline)
      : timeline_(timeline), lanes_(lanes_of(timeline)), scale_(timeline, 12) {
    std::size_t name = 0;
    for (const TimelineLane& lane : lanes_) name = std::max(name, lane.name.size());
    plot_width_ = wide_enough();
    left_ = kMargin + static_cast<double>(name) * kCharacter + 10;
    double y = kMargin + kTitleHeight + kLegendHeight;
    int row = lanes_.empty() ? 0 : lanes_.front().row;
    for (const TimelineLane& lane : lanes_) {
      if (lane.row != row) y += kRowGap;
      row = lane.row;
      tops_.push_back(y);
      y += height_of(lane) + kLaneGap;
    }
    bottom_ = y + 4;
  }

  std::string draw() {
    const double width = left_ + plot_width_ + kMargin + 16;
    const double height = bottom_ + kScaleHeight + kMargin;
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"12\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        width, height);
    out_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"15\" font-weight=\"bold\" "
        "fill=\"#111\">{}</text>\n",
        kMargin, kMargin + 13, escape_xml(timeline_.title));
    draw_legend();
    draw_bands();
    draw_scale();
    draw_spans();
    return out_ + "</svg>\n";
  }

 private:
  static double height_of(const TimelineLane& lane) {
    return lane.lane == 0 ? kMainLane : kOtherLane;
  }

  // So wide that the labels of three quarters of the main lanes' spans fit.
  double wide_enough() const {
    std::vector<double> widths;
    for (const TimelineLane& lane : lanes_) {
      for (const Span* span : lane.spans) {
        if (lane.lane != 0 || span->label.empty() || span->end_s <= span->begin_s) continue;
        const double label = static_cast<double>(span->label.size()) * kCharacter + kLabelMargin;
        widths.push_back(label / (span->end_s - span->begin_s) * scale_.length());
      }
    }
    if (widths.empty()) return kPlotWidthMin;
    const auto quarter = widths.begin() + static_cast<std::ptrdiff_t>(widths.size() * 3 / 4);
    std::nth_element(widths.begin(), quarter, widths.end());
    return std::clamp(std::ceil(*quarter), kPlotWidthMin, kPlotWidthMax);
  }

  double x_of(double time) const {
    return left_ + (time - timeline_.begin_s()) / scale_.length() * plot_width_;
  }

  void draw_legend() {
    std::map<std::string, std::pair<std::size_t, Colour>>
        meanings;  // -> order of appearance, colour
    for (const TimelineLane& lane : lanes_) {
      for (const Span* span : lane.spans) {
        if (span->label.empty()) continue;
        meanings.emplace(meaning_of(span->label),
                         std::pair(meanings.size(), colour_of(span->label)));
      }
    }
    std::vector<std::string> ordered(meanings.size());
    for (const auto& [meaning, entry] : meanings) ordered[entry.first] = meaning;
    double x = left_;
    const double y = kMargin + kTitleHeight;
    for (const std::string& meaning : ordered) {
      out_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"12\" rx=\"2\" fill=\"{}\"/>", x, y,
          hex(meanings.at(meaning).second));
      out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#333\">{}</text>\n", x + 19,
                          y + 10.5, escape_xml(meaning));
      x += 19 + static_cast<double>(meaning.size()) * kCharacter + 18;
    }
    const bool shades = std::any_of(timeline_.spans.begin(), timeline_.spans.end(),
                                    [](const Span& span) { return span.shade > 0; });
    if (shades) {
      out_ +=
          fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"#333\">lighter: later chunk</text>\n",
                      x, y + 10.5);
    }
  }

  // Grey bands, so that idle time shows as what is left of them.
  void draw_bands() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const double height = height_of(lanes_[i]);
      out_ += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" fill=\"#333\">{}</text>"
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#eee\"/>\n",
          left_ - 8, tops_[i] + height / 2 + 4, escape_xml(lanes_[i].name), left_, tops_[i],
          plot_width_, height);
    }
  }

  void draw_scale() {
    const double top = kMargin + kTitleHeight + kLegendHeight;
    for (int tick = 0; tick <= scale_.ticks(); ++tick) {
      const double x = left_ + scale_.tick(tick) / scale_.length() * plot_width_;
      const std::string unit = tick == 0 && !scale_.unit().empty() ? " " + scale_.unit() : "";
      out_ += fmt::format(
          "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#bbb\" "
          "stroke-width=\"0.6\"/>"
          "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\" fill=\"#333\">{4}</text>\n",
          x, top, bottom_, bottom_ + 15, escape_xml(scale_.label(tick) + unit));
    }
  }

  void draw_spans() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      for (const Span* span : lanes_[i].spans) draw_span(*span, tops_[i], height_of(lanes_[i]));
    }
  }

  void draw_span(const Span& span, double top, double height) {
    constexpr double kHairline = 0.8;  // nothing that happened is invisible
    const double x = x_of(span.begin_s);
    const double width = std::max(x_of(span.end_s) - x, kHairline);
    const Colour colour = shaded(colour_of(span.label), span.shade);
    // A white edge parts neighbours, unless they are so narrow that it would hide them.
    const char* edge = width > 4 ? " stroke=\"#fff\" stroke-width=\"1\" rx=\"2\"" : "";
    out_ += fmt::format(
        "<g><title>{}: {:.6g} to {:.6g}{}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" "
        "height=\"{:.1f}\" "
        "fill=\"{}\"{}/>",
        escape_xml(span.label), span.begin_s, span.end_s,
        timeline_.unit.empty() ? " s" : " " + escape_xml(timeline_.unit), x, top, width, height,
        hex(colour), edge);
    const double size = height >= kMainLane ? 12 : 10;
    if (static_cast<double>(span.label.size()) * kCharacter * size / 12 + kLabelMargin - 1 <=
        width) {
      out_ += fmt::format(
          "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\" font-size=\"{:.0f}\" "
          "fill=\"{}\">{}</text>",
          x + width / 2, top + height / 2 + size / 3, size, text_colour(colour),
          escape_xml(span.label));
    }
    out_ += "</g>\n";
  }

  const Timeline& timeline_;
  std::vector<TimelineLane> lanes_;
  TimeScale scale_;
  double plot_width_ = kPlotWidthMin;
  double left_ = 0;
  double bottom_ = 0;
  std::vector<double> tops_;  // [lanes]
  std::string out_;
};

}  // namespace

std::string draw_svg(const Timeline& timeline) { return Svg(timeline).draw(); }

}  // namespace sinew::sched
