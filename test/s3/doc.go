// Package s3 runs a real S3 server (versitygw over a directory) for tests, with
// TLS, credentials and a bucket. It requires TLS, as its clients do.
package s3
