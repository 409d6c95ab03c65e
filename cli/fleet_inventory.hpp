#pragma once

#include "cli/fleet_survey.hpp"

namespace lumelift {

/// What each VM of the fleet is, beside what it should be; looks at all running guests at the same time. Changes nothing.
[[nodiscard]] int fleet_status(const FleetScene& scene);

/// The fleet as an executable inventory of Ansible: hosts, VMs with the way to reach them, their state and groups by it. Other
/// Macs are asked by `ssh`, all at the same time; one that does not answer is listed with the reason. Changes nothing.
[[nodiscard]] int fleet_inventory(const FleetScene& scene);

}  // namespace lumelift
