package v1beta2

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupVersion is the group and version of the kinds of all providers.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2"}
