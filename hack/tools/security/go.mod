module github.com/nova-platform/cluster-api-provider-nova/hack/tools/security

go 1.26.0

require (
	github.com/google/licensecheck v0.3.1
	golang.org/x/vuln v1.1.4
)

require (
	golang.org/x/mod v0.35.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/telemetry v0.0.0-20260409153401-be6f6cb8b1fa // indirect
	golang.org/x/tools v0.44.0 // indirect
	golang.org/x/tools/go/packages/packagestest v0.1.1-deprecated // indirect
)
