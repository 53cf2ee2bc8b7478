// The generators of pipeline schedules and their closed forms, one file each; registry.cc lists
// them. Symbols as in schedule.h: p ranks, v chunks, m microbatches, F, B, W the times of one
// microbatch on one virtual stage.
//
// Never does: insert messages (passes/communication.h does).
// Threads: pure functions.
#pragma once

#include "sched/pipeline/schedule.h"

namespace sinew::sched {

// An empty schedule of these parameters, `ranks` lists of no actions.
[[nodiscard]] PipeSchedule empty_schedule(std::string_view name, const PipeParams& params,
                                          std::vector<std::uint16_t> placement);
void append(PipeSchedule& schedule, int rank, PipeVerb verb, int stage, int microbatch);
// The refusal of schedules that know one stage per rank, empty when there is one.
[[nodiscard]] std::string refuse_chunks(const PipeParams& params);

// gpipe.cc
[[nodiscard]] PipeSchedule gpipe(const PipeParams& params);
[[nodiscard]] int gpipe_peak_live(const PipeParams& params, int rank);

// one_f_one_b.cc
[[nodiscard]] PipeSchedule one_f_one_b(const PipeParams& params);
[[nodiscard]] double one_f_one_b_bubble(const PipeParams& params, const PipeTimes& times);
[[nodiscard]] int one_f_one_b_peak_live(const PipeParams& params, int rank);

// interleaved.cc
[[nodiscard]] PipeSchedule interleaved(const PipeParams& params);
[[nodiscard]] std::string interleaved_refuse(const PipeParams& params);
[[nodiscard]] double interleaved_bubble(const PipeParams& params, const PipeTimes& times);
[[nodiscard]] int interleaved_peak_live(const PipeParams& params, int rank);

// zero_bubble.cc
[[nodiscard]] PipeSchedule zb_h1(const PipeParams& params);
[[nodiscard]] double zb_h1_bubble(const PipeParams& params, const PipeTimes& times);
[[nodiscard]] int zb_h1_peak_live(const PipeParams& params, int rank);
[[nodiscard]] PipeSchedule zb_h2(const PipeParams& params);
[[nodiscard]] double zb_h2_bubble(const PipeParams& params, const PipeTimes& times);
[[nodiscard]] bool zb_h2_exact(const PipeParams& params, const PipeTimes& times);
[[nodiscard]] int zb_h2_peak_live(const PipeParams& params, int rank);

// zero_bubble_v.cc
[[nodiscard]] PipeSchedule zb_v(const PipeParams& params);
[[nodiscard]] std::string zb_v_refuse(const PipeParams& params);
[[nodiscard]] double zb_v_bubble(const PipeParams& params, const PipeTimes& times);
[[nodiscard]] bool zb_v_exact(const PipeParams& params, const PipeTimes& times);
[[nodiscard]] int zb_v_peak_live(const PipeParams& params, int rank);

}  // namespace sinew::sched
