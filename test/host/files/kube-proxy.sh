# Copies the packet filter programs of $DEBIAN, and only the libraries they
# need, into the image root $ROOT.
mkdir -p "$ROOT/usr/sbin" "$ROOT/usr/lib64" "$ROOT/run" "$ROOT/etc"
# Without names of protocols nft lists numbers. A kube-proxy that starts anew
# takes those for leftovers then, and takes its own services away.
cp "$DEBIAN/etc/protocols" "$ROOT/etc/protocols"
ln -s usr/lib "$ROOT/lib"
ln -s usr/lib64 "$ROOT/lib64"
ln -s usr/sbin "$ROOT/sbin"
for program in xtables-nft-multi nft conntrack ipset; do
	cp "$DEBIAN/usr/sbin/$program" "$ROOT/usr/sbin/$program"
done
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
	ln -s xtables-nft-multi "$ROOT/usr/sbin/$name"
done
for extensions in "$DEBIAN"/usr/lib/*-linux-gnu/xtables; do
	target=$ROOT/${extensions#"$DEBIAN/"}
	mkdir -p "${target%/*}"
	cp -a "$extensions" "$target"
done
# Extensions need libraries of their own: libxt_statistic.so needs libm.
(cd "$DEBIAN" && ls usr/sbin/xtables-nft-multi usr/sbin/nft usr/sbin/conntrack usr/sbin/ipset usr/lib/*-linux-gnu/xtables/*.so) |
	sed 's|^|/|' | chroot "$DEBIAN" xargs ldd | grep -o '/[^ :]*\.so[^ :]*' | sort -u | while read -r library; do
	target=$ROOT/usr${library#/usr}
	[ -e "$target" ] && continue
	mkdir -p "${target%/*}"
	cp -L "$DEBIAN$library" "$target"
done
