package vcenter

import (
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// QueryConfigOption returns the configuration options of a hardware version, or of
// the default version. The simulator ignores the version and does not return its
// number, VirtualHardwareOption.hwVersion, which the API requires. Clients compare
// that number with the hardware version of a VM to decide whether to upgrade it.
func (o *operations) QueryConfigOption(ctx *simulator.Context, req *types.QueryConfigOption) soap.HasFault {
	body := &methods.QueryConfigOptionBody{}
	browser, version, fault := configOptionOf(ctx, req.This, req.Key)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	body = browser.QueryConfigOption(req).(*methods.QueryConfigOptionBody)
	setHardware(body.Res.Returnval, version)
	return body
}

// QueryConfigOptionEx is QueryConfigOption with filters.
func (o *operations) QueryConfigOptionEx(ctx *simulator.Context, req *types.QueryConfigOptionEx) soap.HasFault {
	body := &methods.QueryConfigOptionExBody{}
	key := ""
	if req.Spec != nil {
		key = req.Spec.Key
	}
	browser, version, fault := configOptionOf(ctx, req.This, key)
	if fault != nil {
		body.Fault_ = fault
		return body
	}
	body = browser.QueryConfigOptionEx(req).(*methods.QueryConfigOptionExBody)
	setHardware(body.Res.Returnval, version)
	return body
}

// configOptionOf returns an environment browser and the hardware version that key
// is. If key is empty, it is the default version.
func configOptionOf(ctx *simulator.Context, at ref, key string) (*simulator.EnvironmentBrowser, string, *soap.Fault) {
	browser, ok := ctx.Map.Get(at).(*simulator.EnvironmentBrowser)
	if !ok {
		return nil, "", soapFault(notFound(at))
	}
	known := browser.QueryConfigOptionDescriptorResponse.Returnval
	found := slices.IndexFunc(known, func(d types.VirtualMachineConfigOptionDescriptor) bool {
		return d.Key == key || key == "" && d.DefaultConfigOption
	})
	if found < 0 {
		return nil, "", soapFault(&types.InvalidArgument{InvalidProperty: "key"})
	}
	return browser, known[found].Key, nil
}

func setHardware(option *types.VirtualMachineConfigOption, version string) {
	option.Version, option.Description = version, version
	option.HardwareOptions.HwVersion = int32(hardwareNumber(version))
}
