module github.com/vmware/vmw-guestinfo

go 1.26.0
