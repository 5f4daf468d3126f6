package prepare

import (
	"context"
	"fmt"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hostagent/machine"
	"github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"
)

// users makes sure that users exist, with groups, passwords and keys.
func users(ctx context.Context, m *machine.Machine, c *nodeconfig.Machine) error {
	for i := range c.Users {
		if err := user(ctx, m, &c.Users[i]); err != nil {
			return fmt.Errorf("user %s: %w", c.Users[i].Name, err)
		}
	}
	return nil
}

func user(ctx context.Context, m *machine.Machine, u *nodeconfig.User) error {
	added := false
	if _, err := m.Output(ctx, "id", u.Name); err != nil {
		added = true
		if err := m.Run(ctx, "useradd", "-m", "-s", u.Shell, u.Name); err != nil {
			return err
		}
	}
	home, owner, err := account(ctx, m, u.Name)
	if err != nil {
		return err
	}
	if added {
		// A file that was written to the home folder has made root its owner.
		if err := m.Run(ctx, "chown", owner, m.At(home)); err != nil {
			return err
		}
	}
	for _, group := range u.Groups {
		if err := m.Run(ctx, "groupadd", "-f", group); err != nil {
			return err
		}
		if err := m.Run(ctx, "usermod", "-a", "-G", group, u.Name); err != nil {
			return err
		}
	}
	if u.PasswordHash != "" {
		if err := m.RunCommand(ctx, machine.Command{Args: []string{"chpasswd", "-e"}, Input: u.Name + ":" + u.PasswordHash + "\n"}); err != nil {
			return err
		}
	}
	if len(u.Keys) == 0 {
		return nil
	}
	return authorize(ctx, m, u, home, owner)
}

// authorize adds the keys that authorized_keys lacks.
func authorize(ctx context.Context, m *machine.Machine, u *nodeconfig.User, home, owner string) error {
	folder := home + "/.ssh"
	if err := m.Mkdir(folder, 0o700); err != nil {
		return err
	}
	file := folder + "/authorized_keys"
	text := m.Read(file)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	for _, key := range u.Keys {
		if !strings.Contains("\n"+text, "\n"+key+"\n") {
			text += key + "\n"
		}
	}
	if err := m.Write(file, text, 0o600); err != nil {
		return err
	}
	return m.Run(ctx, "chown", "-R", owner, m.At(folder))
}

// account returns the home folder of a user, and the user with its group.
func account(ctx context.Context, m *machine.Machine, name string) (home, owner string, err error) {
	entry, err := m.Output(ctx, "getent", "passwd", name)
	if err != nil {
		return "", "", err
	}
	fields := strings.Split(entry, ":")
	const homeField = 5
	if len(fields) <= homeField {
		return "", "", fmt.Errorf("the system has no home folder of %s", name)
	}
	group, err := m.Output(ctx, "id", "-gn", name)
	if err != nil {
		return "", "", err
	}
	return fields[homeField], name + ":" + group, nil
}
