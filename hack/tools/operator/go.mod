module github.com/nova-platform/cluster-api-provider-nova/hack/tools/operator

go 1.26.0

require sigs.k8s.io/cluster-api-operator v0.27.0
