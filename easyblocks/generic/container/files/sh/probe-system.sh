# shellcheck shell=sh
# Print what packages of the distribution need: its name, the programs and the directories that there are.
# Usage: DIRECTORY...  (names in /)
for file in /etc/os-release /usr/lib/os-release; do
    if [ -r "$file" ]; then
        # shellcheck source=/dev/null
        . "$file"
        break
    fi
done
printf 'name %s\n' "${PRETTY_NAME:-unknown}"
for name in apt-get dpkg perl tar zypper dnf microdnf yum apk; do
    ! command -v "$name" >/dev/null || printf 'program %s\n' "$name"
done
for name; do
    if [ -d "/$name" ] && [ ! -L "/$name" ]; then
        printf 'directory %s\n' "$name"
    fi
done
[ ! -s /var/lib/dpkg/status ] || echo 'program dpkg-status'
