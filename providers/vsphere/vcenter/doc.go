// Package vcenter sends requests to vCenters and interprets their errors. It
// knows no machines and no clusters.
package vcenter
