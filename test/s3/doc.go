// Package s3 runs a real S3 server (versitygw over a directory) for tests,
// with TLS and credentials, and a bucket in it. It refuses to answer without
// TLS, as what uses it does.
package s3
