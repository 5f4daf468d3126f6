// Package leaks finds confidential values of Secrets in text that more people
// can read than Secrets: logs, events, statuses and metrics.
//
// It knows the forms that the values have in the Secrets of clusters: private
// keys in PEM, kubeconfigs, bootstrap data with encoded files, tokens and
// passwords. It does not report certificates, user names, addresses and values
// that are too short to distinguish from other text.
package leaks
