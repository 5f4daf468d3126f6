package bootstrap

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var judged = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "nova_bootstrap_certificate_requests_total",
	Help: "Certificate requests of nodes that were judged, by what they are for (join, serving, renewal) and the ruling (approve, deny, hold).",
}, []string{"kind", "ruling"})

func init() { metrics.Registry.MustRegister(judged) }
