// Package sites contains the Clusters that the module catalogue is rendered for
// in tests, and by the command hack/tools/catalogue.
package sites
