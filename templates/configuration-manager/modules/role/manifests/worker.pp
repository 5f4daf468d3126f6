# A node for workloads.
class role::worker {
}
