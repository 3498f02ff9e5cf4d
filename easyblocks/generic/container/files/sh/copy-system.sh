# shellcheck shell=sh
# Copy directories of the image, without what packages don't need or other accounts can't read.
# Usage: TARGET DIRECTORY...  (names in /)
target=$1
shift
tar --one-file-system --ignore-failed-read --exclude='./usr/local/*' --exclude='./usr/share/doc/*' \
    --exclude='./var/cache/*' --exclude='./var/log/*' --exclude='./var/tmp/*' --exclude='./var/lib/apt/lists/*' \
    -C / -cf - -- "$@" 2>/dev/null | tar -C "$target" --no-same-owner --delay-directory-restore -xpf - || exit
# the runtime mounts its own
for name in passwd group hosts resolv.conf; do
    rm -f "$target/etc/$name"
    cat "/etc/$name" >"$target/etc/$name" 2>/dev/null || :
done
